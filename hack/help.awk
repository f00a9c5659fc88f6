# `make help`: the targets of a Makefile by section. all: every target, with its details.

/^##@ / { section = substr($0, 5) }

/^[a-z0-9-]+:.*##-? / {
    is_usual = index($0, "## ")
    if (!is_usual && !all) next
    if (section) printf "\n%s\n", section
    section = ""
    name = substr($0, 1, index($0, ":") - 1)
    words = substr($0, is_usual ? is_usual + 3 : index($0, "##- ") + 4)
    bar = index(words, " | ")
    printf "  %-16s%s\n", name, bar ? substr(words, 1, bar - 1) : words
    if (bar && all) wrap(substr(words, bar + 3))
}

END { if (!all) print "\nEvery target, with its variables: make help ALL=1" }

function wrap(text,    words, count, i, line) {
    count = split(text, words, " ")
    for (i = 1; i <= count; i++) {
        if (length(line) + length(words[i]) > 78) { printf "%18s%s\n", "", line; line = "" }
        line = line (line ? " " : "") words[i]
    }
    printf "%18s%s\n", "", line
}
