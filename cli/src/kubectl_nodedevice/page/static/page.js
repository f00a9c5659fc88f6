"use strict";
// One page: the fleet, a node, a device, a pod. All text from the cluster is set as text, never as HTML.

const STATES = {
  f: ["free", "Free"], p: ["partly free", "PartlyFree"], h: ["in use", "Held"], r: ["releasing", "Releasing"],
  c: ["cordoned", "Cordoned"], t: ["tainted", "Tainted"], b: ["unhealthy", "Broken"], m: ["missing", "Missing"],
  g: ["plugin gone", "NoPlugin"], u: ["unknown", "Unknown"],
};
const SERVERS = { nodedevice: "nodedevice", kubelet: "the kubelet", dra: "a DRA driver" };
// squares of one row of the fleet: the first of these that keeps the page below so many elements. The node's view has all.
const MOST_SQUARES = [256, 128, 64, 48, 32, 24, 16, 8, 4], MOST_ELEMENTS = 2800;
// elements of a row without its squares
const OF_ROW = 8;
// sizes in CSS pixels: of a square with its gap, of a label, between cells, of the narrowest cell, beyond the screen
const STEP = 18, LABEL = 22, GAP = 12, SPACE = 24, CELL = 290, MARGIN = 400;
const MOST_CHANGES = 20000, MOST_OF_DEVICE = 100;
// rows of a table, squares of a view of one node, and choices of a filter
const MOST_ROWS = 200, MOST_OF_NODE = 512, MOST_CHOICES = 100;
// a sign of life comes every five seconds; the longest time of one view
const MUTE_MS = 20000, VIEW_MS = 120000;
// labels of nodes are read again, and sooner after a failure
const LABELS_MS = 30000, LABELS_AGAIN_MS = 5000;

const fleet = {
  squares: new Map(), about: {}, needs: { groups: [], more: 0 }, sources: {}, epoch: "", sequence: 0, isRead: false,
  heard: 0, isCut: false, problem: "", changes: new Map(), changeCount: 0, areChangesLost: false, keys: new Map(),
};
let snapshot = null, labels = { of: "", nodes: null, isRead: true, problem: "", timer: 0 }, layout = { rows: [], tops: [], columns: 1, cell: 320, most: 0 }, drawn = new Map(), isDue = false, events = null, again = 0;

// -- small helpers ----------------------------------------------------------------------------------------------------

function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : key === "title" || key === "aria-label" ? plain(value) : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== "").map((child) => (typeof child === "string" ? plain(child) : child)));
  return made;
}

// without control characters and changes of direction, as in a terminal
function plain(text) { return text.replace(/\s/g, " ").replace(/[\p{Cc}\p{Cf}]/gu, ""); }

const number = (value) => value.toLocaleString("en");
const time = (seconds) => { const at = new Date(seconds * 1000); return at.toDateString() === new Date().toDateString() ? at.toLocaleTimeString("en-GB") : at.toLocaleString("en-GB"); };
const moment = (text) => { const at = new Date(text); return text && !isNaN(at) ? `${at.toLocaleString("en-GB")} (${ago(at)})` : text || "–"; };
const byId = (id) => document.getElementById(id);
const place = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

function ago(at) {
  const seconds = Math.max(0, (Date.now() - at) / 1000);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return `${Math.floor(seconds)} s ago`;
}

// node-2 before node-10
function natural(text) {
  let key = fleet.keys.get(text);
  if (key === undefined) {
    key = text.replace(/\d{1,15}/g, (digits) => digits.padStart(15, "0"));
    fleet.keys.set(text, key);
  }
  return key;
}

function command(text) {
  const button = el("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousSibling);
      button.textContent = "Press Ctrl-C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return el("div", { class: "command" }, el("code", {}, text), button);
}

function table(head, rows, caption) {
  if (!rows.length) return el("p", { class: "faint" }, "None.");
  const shown = rows.slice(0, MOST_ROWS), more = rows.length - shown.length;
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, el("tr", {}, ...head.map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, ...shown.map((row) => el("tr", {}, ...row().map((cell) => el("td", {}, cell)))))),
    more ? el("p", { class: "faint" }, `… and ${number(more)} more`) : null);
}

// -- where we are: the fragment of the address --------------------------------------------------------------------------

function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  let parts;
  try { parts = path.split("/").map(decodeURIComponent); } catch { parts = [""]; }
  return { parts, filters: new URLSearchParams(query || "") };
}

function setFilter(name, value) {
  const { filters } = where();
  if (value) filters.set(name, value); else filters.delete(name);
  const query = filters.toString();
  history.replaceState(null, "", `#/${query ? `?${query}` : ""}`);
  showFleet();
}

// -- the fleet ----------------------------------------------------------------------------------------------------------

function counts() {
  const found = {};
  for (const each of fleet.squares.values()) {
    for (const letter of each.states) found[letter] = (found[letter] || 0) + 1;
    if (each.more) found.f = (found.f || 0) + each.more;
  }
  return found;
}

function matching(filters) {
  const node = (filters.get("node") || "").toLowerCase(), resource = filters.get("resource") || "";
  const state = filters.get("state") || "", namespace = filters.get("namespace") || "";
  const rows = [];
  for (const each of fleet.squares.values()) {
    if (node && !each.node.toLowerCase().includes(node)) continue;
    if (resource && each.resource !== resource) continue;
    if (state && !each.states.includes(state) && !(state === "f" && each.more)) continue;
    if (namespace && !each.holders.some(([, pod]) => pod.startsWith(`${namespace}/`))) continue;
    if (labels.nodes && !labels.nodes.has(each.node)) continue;
    rows.push(each);
  }
  const key = (each) => `${natural(each.node)} ${each.resource}`;
  return rows.map((each) => [key(each), each]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).map((each) => each[1]);
}

function showFleet() {
  const { filters } = where(), main = byId("main");
  document.title = `Devices of ${fleet.about.cluster || "a cluster"}`;
  if (!byId("rows")) {
    main.replaceChildren(
      el("section", { id: "needs", class: "needs", "aria-label": "Needs attention" }),
      el("form", { class: "filters", role: "search", "aria-label": "Filters", onsubmit: (event) => event.preventDefault() },
        field("node", "Node", { type: "search", placeholder: "part of its name" }),
        el("label", {}, "Resource", el("select", { id: "resource", onchange: (event) => setFilter("resource", event.target.value) })),
        field("namespace", "Namespace of pods", { list: "namespaces" }), el("datalist", { id: "namespaces" }),
        field("labels", "Labels of nodes", { placeholder: "zone=a,gpu" })),
      el("ul", { id: "legend", class: "legend", "aria-label": "States" }),
      el("p", { id: "found", role: "status", class: "faint" }), el("div", { id: "rows" }));
    drawn = new Map();
  }
  for (const name of ["node", "namespace", "labels"]) if (document.activeElement !== byId(name)) byId(name).value = filters.get(name) || "";
  showNeeds();
  showLegend(filters);
  showChoices(filters);
  selectLabels(filters.get("labels") || "");
  lay(matching(filters));
}

function field(name, label, attributes) {
  let waiting = 0;
  const typed = (event) => { clearTimeout(waiting); waiting = setTimeout(() => setFilter(name, event.target.value.trim()), 200); };
  return el("label", {}, label, el("input", { id: name, autocomplete: "off", oninput: typed, ...attributes }));
}

function showChoices(filters) {
  const chosen = filters.get("resource") || "", resources = new Set(), namespaces = new Set();
  for (const each of fleet.squares.values()) {
    resources.add(each.resource);
    for (const [, pod] of each.holders) namespaces.add(pod.split("/")[0]);
  }
  const choices = [...resources].sort().slice(0, MOST_CHOICES);
  // a link may name one that is gone
  if (chosen && !choices.includes(chosen)) choices.push(chosen);
  if (isNew(byId("resource"), [choices, chosen])) {
    byId("resource").replaceChildren(el("option", { value: "" }, "all"), ...choices.map((each) => el("option", { value: each }, each)));
    byId("resource").value = chosen;
  }
  const names = [...namespaces].sort().slice(0, MOST_CHOICES);
  if (isNew(byId("namespaces"), names)) byId("namespaces").replaceChildren(...names.map((each) => el("option", { value: each })));
}

// whether an element shows something else, which it shows from now on
function isNew(element, content) {
  const of = JSON.stringify(content);
  if (element.dataset.of === of) return false;
  element.dataset.of = of;
  return true;
}

function showLegend(filters) {
  const found = counts(), chosen = filters.get("state") || "", legend = byId("legend");
  const entries = Object.entries(STATES).filter(([letter]) => found[letter] || letter === chosen);
  if (!isNew(legend, [entries.map(([letter]) => [letter, found[letter]]), chosen])) return;
  const focused = legend.contains(document.activeElement) ? document.activeElement.dataset.state : null;
  legend.replaceChildren(...entries.map(([letter, [words]]) => el("li", {}, el("button",
    { type: "button", "data-state": letter, "aria-pressed": String(letter === chosen), onclick: () => setFilter("state", letter === chosen ? "" : letter) },
    el("span", { class: `sq ${letter}`, "aria-hidden": "true" }), `${words} ${number(found[letter] || 0)}`))));
  if (focused) legend.querySelector(`[data-state="${focused}"]`)?.focus();
}

function showNeeds() {
  const panel = byId("needs"), { groups, more } = fleet.needs, isBlind = Object.values(fleet.sources).some((each) => each.problem);
  const words = isBlind ? "What needs attention is not known: not everything can be read." : fleet.isRead ? "Nothing needs attention." : "Reading the cluster…";
  if (!isNew(panel, [fleet.needs, words])) return;
  const wasOpen = panel.querySelector("details")?.open ?? true;
  if (!groups.length) { panel.replaceChildren(el("p", {}, words)); return; }
  panel.replaceChildren(el("details", { open: wasOpen },
    el("summary", {}, `Needs attention: ${number(groups.length + more)}`),
    el("ul", { tabindex: "0" }, ...groups.map(need), more ? el("li", {}, `… and ${number(more)} more: kubectl nodedevice lists them`) : null)));
}

function need(each) {
  const about = each.about || {}, links = [];
  if (about.device && !about.count) links.push(el("a", { href: place("device", about.node, about.resource, about.device) }, "device"));
  if (about.node && !about.count) links.push(el("a", { href: place("node", about.node) }, "node"));
  if (about.pod && !about.count && about.pod.includes("/")) links.push(el("a", { href: place("pod", ...about.pod.split("/")) }, "pod"));
  const linked = links.flatMap((link) => [" ", link]);
  return el("li", {}, el("div", {}, each.text, ...linked), each.command ? command(each.command) : null);
}

function selectLabels(selector) {
  if (labels.of === selector) return;
  clearTimeout(labels.timer);
  // until they are read no node is shown, rather than nodes with other labels
  labels = { of: selector, nodes: selector ? new Set() : null, isRead: !selector, problem: "", timer: 0 };
  if (selector) readLabels(labels);
}

async function readLabels(wanted) {
  const found = await view("labels", { selector: wanted.of });
  if (labels !== wanted) return;
  const problem = found.problem ? `The labels cannot be used: ${found.problem}${found.remedy ? `; ${found.remedy}` : ""}.` : "";
  const nodes = found.nodes ? new Set(found.nodes) : wanted.nodes;
  const isSame = wanted.isRead && problem === wanted.problem && nodes.size === wanted.nodes.size && [...nodes].every((each) => wanted.nodes.has(each));
  Object.assign(wanted, { nodes, problem, isRead: true });
  if (!snapshot) wanted.timer = setTimeout(waitForFleet, problem ? LABELS_AGAIN_MS : LABELS_MS, wanted);
  if (!isSame && byId("rows")) showFleet();
}

// a hidden tab, and a view of one object, need no labels
function waitForFleet(wanted) {
  if (document.hidden || !byId("rows") || fleet.isCut) wanted.timer = setTimeout(waitForFleet, LABELS_AGAIN_MS, wanted);
  else readLabels(wanted);
}

// -- rows: only those on the screen are elements --------------------------------------------------------------------------

function lay(rows) {
  const box = byId("rows"), width = box.clientWidth || 320;
  const room = MOST_ELEMENTS - document.querySelectorAll("*").length + box.querySelectorAll("*").length;
  let columns = Math.max(1, Math.floor((width + SPACE) / (CELL + SPACE)));
  let made = fitting(rows, width, columns, room);
  // a very large screen has fewer and wider columns
  while (!made && columns > 1) made = fitting(rows, width, columns -= 1, room);
  layout = made || arranged(rows, width, 1, MOST_SQUARES.at(-1));
  box.style.height = `${layout.height}px`;
  const devices = rows.reduce((sum, each) => sum + each.total, 0), free = rows.reduce((sum, each) => sum + each.free, 0);
  const nodes = new Set(rows.map((each) => each.node)).size;
  const sum = `${number(nodes)} ${nodes === 1 ? "node" : "nodes"}, ${number(devices)} ${devices === 1 ? "device" : "devices"}, ${number(free)} free`;
  const text = rows.length ? [sum, labels.problem].filter(Boolean).join(". ") : labels.problem || emptyWords();
  if (byId("found").textContent !== text) byId("found").textContent = text;
  draw();
}

function fitting(rows, width, columns, room) {
  const longest = rows.reduce((found, each) => Math.max(found, each.ids.length), 0);
  // limits above all rows make no difference
  for (const most of MOST_SQUARES.filter((_, at) => !(MOST_SQUARES[at + 1] >= longest))) {
    const made = arranged(rows, width, columns, most);
    if (mostAtOnce(made) <= room) return made;
  }
  return null;
}

// tops: of the lines of cells. elements: of each line
function arranged(rows, width, columns, most) {
  const cell = (width + SPACE) / columns - SPACE, perLine = Math.max(1, Math.floor((cell + 3) / STEP));
  const tops = [], elements = [];
  let height = 0;
  for (let index = 0; index < rows.length; index += columns) {
    let lines = 1, count = 0;
    for (const each of rows.slice(index, index + columns)) {
      const shown = Math.min(each.ids.length, most), more = each.ids.length > shown || each.more ? 6 : 0;
      lines = Math.max(lines, Math.ceil((shown + more) / perLine));
      count += shown + OF_ROW;
    }
    tops.push(height);
    elements.push(count);
    height += LABEL + lines * STEP + GAP;
  }
  return { rows, tops, columns, cell, most, elements, height };
}

// the most elements of all lines that can be on the screen together
function mostAtOnce({ tops, elements }) {
  let most = 0, count = 0, first = 0;
  for (let line = 0; line < tops.length; line += 1) {
    count += elements[line];
    // the line above is drawn if its end is on the screen
    while (tops[first + 1] < tops[line] - innerHeight - 2 * MARGIN) count -= elements[first++];
    most = Math.max(most, count);
  }
  return most;
}

function emptyWords() {
  if (!fleet.isRead) return "Reading the cluster…";
  if (fleet.squares.size) return labels.isRead ? "No device matches these filters." : "Reading the labels of nodes…";
  return fleet.sources.nodedevices?.problem ? "The devices cannot be read." : "No devices: no device plugin has registered with an agent yet.";
}

// the last line of cells that begins above a position
function lineAt(position) {
  let low = 0, high = layout.tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (layout.tops[middle] <= position) low = middle; else high = middle - 1;
  }
  return low;
}

function draw() {
  const box = byId("rows");
  if (!box) return;
  const { rows, tops, columns, cell } = layout, offset = -box.getBoundingClientRect().top, kept = new Map();
  const focused = document.activeElement?.closest?.(".row")?.dataset.name;
  for (let line = lineAt(offset - MARGIN); line < tops.length && tops[line] <= offset + innerHeight + MARGIN; line += 1) {
    rows.slice(line * columns, (line + 1) * columns).forEach((each, column) => {
      const element = drawnCell(box, each, focused);
      element.style.top = `${tops[line]}px`;
      element.style.left = `${column * (cell + SPACE)}px`;
      element.style.width = `${cell}px`;
      kept.set(each.name, { of: each, most: layout.most, element });
    });
  }
  for (const [name, row] of drawn) if (!kept.has(name)) row.element.remove();
  drawn = kept;
}

function drawnCell(box, each, focused) {
  const old = drawn.get(each.name);
  if (old && old.of === each && old.most === layout.most) return old.element;
  const made = rowOf(each);
  if (!old) { box.append(made); return made; }
  const index = focused === each.name ? [...old.element.querySelectorAll("a")].indexOf(document.activeElement) : -1;
  old.element.replaceWith(made);
  if (index >= 0) made.querySelectorAll("a")[index]?.focus({ preventScroll: true });
  return made;
}

function rowOf(each) {
  const silent = each.silent ? `; its agent is silent since ${moment(each.silent)}` : "";
  const numbers = `${number(each.free)} of ${number(each.total)} free`;
  const notes = [each.ready && `not ready: ${each.ready}`, each.waiting && `${number(each.waiting)} ${each.waiting === 1 ? "pod waits" : "pods wait"}`].filter(Boolean).join("; ");
  return el("div", { class: `row${each.silent ? " silent" : ""}`, "data-name": each.name, role: "group", "aria-label": `${each.node}, ${each.resource}: ${numbers}${silent}` },
    el("div", { class: "what" }, el("a", { href: place("node", each.node) }, each.node), el("span", {}, each.resource),
      each.by === "dra" || each.by === "kubelet" ? el("span", { class: "faint" }, SERVERS[each.by]) : null,
      notes ? el("span", {}, notes) : null, el("span", { class: "numbers" }, numbers)),
    squaresOf(each, layout.most));
}

// the devices that a row with room for so many shows: with the chosen state first, then those that need attention
function chosenOf(each, most) {
  const all = each.ids.map((_, index) => index);
  if (all.length <= most) return all;
  const wanted = where().filters.get("state"), rank = (index) => (each.states[index] === wanted ? 0 : "bmgutcr".includes(each.states[index]) ? 1 : 2);
  return all.sort((a, b) => rank(a) - rank(b) || a - b).slice(0, most).sort((a, b) => a - b);
}

function squaresOf(each, most) {
  const holders = new Map(), parts = new Map(each.parts.map(([index, free, of]) => [index, [free, of]]));
  for (const [index, pod, count] of each.holders) holders.set(index, [...(holders.get(index) || []), count ? `${pod} (${count})` : pod]);
  const shown = chosenOf(each, most).map((index, position) => {
    const id = each.ids[index], letter = each.states[index], held = holders.get(index), share = parts.get(index);
    const words = `${id}: ${STATES[letter][0]}${share ? `, ${share[0]} of ${share[1]} free` : ""}${held ? `, ${held.join(", ")}` : ""}`;
    const made = el("a", { class: `sq ${letter}`, href: place("device", each.node, each.resource, id), title: words, "aria-label": words, tabindex: position ? "-1" : "0" });
    if (share && share[1]) made.style.setProperty("--used", `${(100 * (share[1] - share[0])) / share[1]}%`);
    return made;
  });
  const rest = each.ids.length - shown.length + each.more;
  return el("div", { class: "squares" }, ...shown, rest ? el("span", { class: "more" }, `and ${number(rest)} more`) : null);
}

// arrow keys move between squares, and between rows
function moveFocus(event) {
  const square = event.target.closest?.("a.sq"), row = square?.closest(".row");
  if (!row || !["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
  const squares = [...row.querySelectorAll("a.sq")], index = squares.indexOf(square);
  let next = null;
  if (event.key === "ArrowLeft") next = squares[index - 1];
  else if (event.key === "ArrowRight") next = squares[index + 1];
  else if (event.key === "Home") [next] = squares;
  else if (event.key === "End") next = squares.at(-1);
  else {
    const step = event.key === "ArrowUp" ? -layout.columns : layout.columns;
    let number = layout.rows.findIndex((each) => each.name === row.dataset.name) + step;
    while (layout.rows[number] && !layout.rows[number].ids.length) number += step;
    const target = layout.rows[number];
    if (!target) return;
    const top = byId("rows").getBoundingClientRect().top + layout.tops[Math.floor(number / layout.columns)];
    if (top < 60 || top > innerHeight - 80) scrollBy(0, top - innerHeight / 2);
    draw();
    const others = drawn.get(target.name)?.element.querySelectorAll("a.sq") || [];
    next = others[Math.min(index, others.length - 1)];
  }
  event.preventDefault();
  if (!next) return;
  for (const each of next.closest(".row").querySelectorAll("a.sq")) each.tabIndex = each === next ? 0 : -1;
  next.focus({ preventScroll: event.key !== "ArrowLeft" && event.key !== "ArrowRight" });
}

// -- node, device, pod ------------------------------------------------------------------------------------------------------

async function showView(kind, query, title, facts) {
  const main = byId("main"), here = location.hash;
  document.title = title;
  const body = el("div", {}, el("p", { class: "faint" }, "Reading…"));
  main.replaceChildren(el("p", {}, el("a", { href: "#/" }, "All devices")), el("h2", {}, title), facts(), body);
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
  const found = await view(kind, query);
  if (location.hash !== here) return;
  body.replaceChildren(...(found.problem ? [problem(found)] : DETAILS[kind](found, query)));
}

const problem = (found) => el("p", { role: "alert" }, `${found.problem}${found.remedy ? `; ${found.remedy}` : ""}`);

const DETAILS = {
  node: (found) => [...why(found.why), el("h3", {}, "Devices"),
    table(["Resource", "Device", "State", "Used by"], found.devices.map((each) => () => [each.resource, deviceLink(each), each.state, holders(each)]), "Devices"),
    el("h3", {}, "Conditions"),
    table(["Resource", "Type", "Status", "Reason", "Message"], found.conditions.map((each) => () => [each.resource, each.type, each.status, each.reason, each.message]), "Conditions"),
    ...found.commands.map(command)],
  device: (found, query) => {
    const { device } = found, attributes = Object.entries(device.attributes);
    const facts = [["State", device.state], ["Since", moment(device.since)], ["Reason", device.reason || "–"], ["Message", device.message || "–"],
      ["Served by", SERVERS[device.servedBy] || device.servedBy || "–"], ["NUMA nodes", device.numaNodes.join(", ") || "–"], ...attributes];
    if (device.parts) facts.splice(1, 0, ["Shares", el("span", {}, el("meter", { min: 0, max: device.parts.total, value: device.parts.total - device.parts.available, "aria-label": "shares in use" }), ` ${number(device.parts.total - device.parts.available)} of ${number(device.parts.total)} in use`)]);
    return [table(["Field", "Value"], facts.map((each) => () => each), "Facts"), el("h3", {}, "Used by"),
      table(["Pod", "Container", "Shares", "Since", "Claim"], device.holders.map((each) => () => [podLink(each.namespace, each.pod, each.podUID), each.container, each.parts || "–", moment(each.since), each.claim || "–"]), "Used by"),
      ...cordons(device), ...why(found.why), ...found.commands.map(command), el("h3", {}, "Changes seen while this page was open"), changes(query)];
  },
  pod: (found) => [el("ol", { class: "chain" }, ...found.chain.map((link) => el("li", { class: link.state }, el("b", {}, link.title), `${link.text} `, el("span", { class: "faint" }, link.state === "open" ? "not reached" : link.state)))),
    ...why(found.why), el("h3", {}, "Devices"),
    table(["Container", "Resource", "Device", "Health", "Shares"], found.devices.map((each) => () => [each.container, each.resource, deviceLink(each), each.health || "–", each.of ? `${each.parts} of ${each.of}` : "–"]), "Devices"),
    ...found.commands.map(command)],
};

const deviceLink = (each) => el("a", { href: place("device", each.node, each.resource, each.id) }, each.id);
const podLink = (namespace, pod, uid) => (pod ? el("a", { href: place("pod", namespace, pod) }, `${namespace}/${pod}`) : `pod ${uid}`);
const holders = (each) => el("span", {}, ...each.holders.flatMap((held, index) => [index ? ", " : "", podLink(held.namespace, held.pod, held.podUID)]));
const cordons = (device) => (device.cordons.length ? [el("h3", {}, "Cordons"), table(["By", "Reason", "Since"], device.cordons.map((each) => () => [each.by || "–", each.reason || "–", moment(each.at)]), "Cordons")] : []);

function why(found) {
  const causes = found.causes.flatMap((cause) => [el("li", {}, el("div", {}, cause.message), el("div", { class: "faint" }, cause.help.text), command(cause.help.command),
    cause.help.allowed === false ? el("div", { class: "faint" }, `You may not run this line; the role ${cause.help.role} may.`) : null)]);
  const notes = [...found.notes, found.words.message ? `The ${found.words.by}: ${found.words.message}` : "", found.unknown.length ? `Not known: ${found.unknown.map((each) => each.kind).join(", ")}. You may not read them.` : ""].filter(Boolean);
  return [el("p", {}, `${found.subject} ${found.state}`), causes.length ? el("ol", {}, ...causes) : null, ...notes.map((each) => el("p", {}, each))].filter(Boolean);
}

function changes({ node, resource, id }) {
  const seen = fleet.changes.get(`${node} ${resource} ${id}`) || [];
  if (seen.length) return table(["Time", "From", "To", "Used by"], seen.map((each) => () => [time(each.at), each.from, each.to, each.by || "–"]), "Changes");
  return el("p", { class: "faint" }, fleet.areChangesLost ? `None of the last ${number(MOST_CHANGES)} changes of the cluster.` : "None.");
}

function ofFleet(node, resource) {
  return () => {
    const found = [...fleet.squares.values()].filter((each) => each.node === node && (!resource || each.resource === resource));
    return el("div", {}, ...found.map((each) => el("div", { class: each.silent ? "silent" : "" },
      el("h3", {}, `${each.resource}: ${number(each.free)} of ${number(each.total)} free`), squaresOf(each, Math.ceil(MOST_OF_NODE / found.length)))));
  };
}

// -- data -------------------------------------------------------------------------------------------------------------------

async function view(kind, query) {
  if (snapshot) return { problem: "a snapshot has no more than the fleet", remedy: "kubectl nodedevice open shows it live" };
  try {
    const response = await fetch(`/api/${kind}?${new URLSearchParams(query)}`, { signal: AbortSignal.timeout(VIEW_MS) });
    return await response.json();
  } catch (error) {
    if (error.name === "TimeoutError") return { problem: "no answer within two minutes", remedy: "load the page again" };
    return { problem: "kubectl nodedevice open has ended, or cannot be reached", remedy: "start it again" };
  }
}

function take(square) {
  const old = fleet.squares.get(square.name);
  fleet.squares.set(square.name, square);
  if (old) note(old, square);
}

// devices that changed while the page was open
function note(old, now) {
  const before = seenDevices(old), after = seenDevices(now), none = { state: "not listed", by: "" };
  for (const id of new Set([...before.keys(), ...after.keys()])) {
    const from = before.get(id) || none, to = after.get(id) || none;
    if (from.state !== to.state || from.by !== to.by) keepChange(`${now.node} ${now.resource} ${id}`, { at: Date.now() / 1000, from: from.state, to: to.state, by: to.by });
  }
}

// state and pods of each device
function seenDevices(square) {
  const pods = new Map();
  for (const [index, pod] of square.holders) pods.set(index, pods.has(index) ? `${pods.get(index)}, ${pod}` : pod);
  return new Map(square.ids.map((id, index) => [id, { state: STATES[square.states[index]][0], by: pods.get(index) || "" }]));
}

// the newest changes; a device that changed longest ago is forgotten first
function keepChange(key, change) {
  const seen = fleet.changes.get(key) || [];
  seen.unshift(change);
  fleet.changeCount += 1;
  if (seen.length > MOST_OF_DEVICE) { seen.pop(); fleet.changeCount -= 1; }
  fleet.changes.delete(key);
  fleet.changes.set(key, seen);
  if (fleet.changeCount <= MOST_CHANGES) return;
  const [oldest, lost] = fleet.changes.entries().next().value;
  fleet.changes.delete(oldest);
  fleet.changeCount -= lost.length;
  fleet.areChangesLost = true;
}

function takeAll(found) {
  for (const each of found.squares) if (fleet.squares.has(each.name)) note(fleet.squares.get(each.name), each);
  fleet.squares = new Map(found.squares.map((each) => [each.name, each]));
  Object.assign(fleet, { about: found.about, epoch: found.epoch, sequence: found.sequence, needs: found.needs, sources: found.sources, isRead: found.isRead });
}

async function load() {
  clearTimeout(again);
  pause();
  let response, found;
  try {
    response = await fetch("/api/fleet");
    found = await response.json();
  } catch {
    return cut();
  }
  if (!response.ok) {
    const isOut = response.status === 401;
    fleet.isCut = false;
    fleet.problem = isOut ? fleet.problem || `You are not logged in to this page: ${found.problem}` : found.problem;
    if (!isOut) again = setTimeout(load, 2000);
    return showCurrent();
  }
  fleet.isCut = false;
  if (fleet.problem && !document.hidden) fleet.problem = "";
  const isFirst = !fleet.epoch || !byId("main").childElementCount || byId("loading");
  takeAll(found);
  if (isFirst) show(); else { showCurrent(); due(); }
  follow();
}

function pause() { events?.close(); events = null; }

// A browser opens few connections to one server, so a hidden tab has none.
function follow() {
  pause();
  if (document.hidden) return;
  fleet.heard = Date.now();
  const made = events = new EventSource(`/api/events?${new URLSearchParams({ epoch: fleet.epoch, since: fleet.sequence })}`);
  const on = (name, act) => made.addEventListener(name, (event) => {
    if (made !== events) return;
    fleet.heard = Date.now();
    fleet.isCut = false;
    if (name !== "full") fleet.problem = "";
    act(JSON.parse(event.data));
  });
  on("changed", (found) => {
    found.squares.forEach(take);
    found.gone.forEach((name) => fleet.squares.delete(name));
    fleet.sequence = found.sequence;
    due();
  });
  on("needs", (found) => { fleet.needs = found; due(); });
  on("sources", (found) => {
    const before = JSON.stringify([fleet.isRead, stateOfSources()]);
    Object.assign(fleet, { sources: found.sources, isRead: found.isRead });
    if (JSON.stringify([fleet.isRead, stateOfSources()]) !== before) due();
    showCurrent();
  });
  on("full", (found) => { fleet.problem = found.problem; pause(); clearTimeout(again); again = setTimeout(load, 10000); showCurrent(); });
  on("reload", load);
  made.onerror = () => { made.close(); if (made === events) cut(); };
}

const stateOfSources = () => Object.values(fleet.sources).map((each) => [each.problem, each.isForbidden]);

function cut() {
  pause();
  fleet.isCut = true;
  showCurrent();
  clearTimeout(again);
  again = setTimeout(load, 2000);
}

// one drawing for all changes of a moment
function due() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; if (byId("rows") || byId("namespace")) showHome(); else refreshSquares(); });
}

function refreshSquares() {
  const { parts } = where(), old = document.querySelector("main > div");
  if (old && (parts[0] === "node" || parts[0] === "device")) old.replaceWith(ofFleet(parts[1], parts[2])());
}

// -- how current it is --------------------------------------------------------------------------------------------------------

function showCurrent() {
  const main = fleet.sources.nodedevices || {}, problems = [];
  const since = main.asOf ? `as of ${time(main.asOf)}` : "";
  if (snapshot) { byId("current").textContent = `A snapshot ${since}`; return; }
  if (fleet.problem) problems.push(fleet.problem);
  const isMute = events && Date.now() - fleet.heard > MUTE_MS;
  if (fleet.isCut) problems.push("kubectl nodedevice open has ended, or cannot be reached. Start it again");
  else if (isMute) problems.push("kubectl nodedevice open does not answer. If Ctrl-Z stopped it, fg continues it");
  for (const [what, each] of Object.entries(fleet.sources)) if (each.problem || each.unread) problems.push(each.problem ? `${what}: ${each.problem}` : each.unread);
  if (main.isStale) problems.push("the API server is silent");
  const isOld = fleet.isCut || isMute || fleet.problem || main.isStale || main.problem || !main.asOf;
  const text = isOld ? since || "not read yet" : "live";
  if (byId("current").textContent !== text) byId("current").textContent = text;
  trouble(problems.length ? `${isOld && since ? `${since}: ` : ""}${problems.join("; ")}.` : "");
}

function trouble(text) {
  const line = byId("trouble");
  if (line.textContent === text) return;
  line.textContent = text;
  line.hidden = !text;
  byId("loading")?.remove();
}

async function showNamespace() {
  const body = el("div", {}, el("p", { class: "faint" }, "Reading…"));
  byId("main").replaceChildren(el("h2", { id: "namespace" }, "Devices of your pods"), el("p", {}, "You may not see the devices of the cluster; the role nodedevice-fleet-view may."), body);
  const found = await view("namespace", {});
  body.replaceChildren(...(found.problem ? [problem(found)] : [
    el("p", {}, `Namespace ${found.namespace}, as of ${time(Date.now() / 1000)}. Load the page again to read them again; kubectl nodedevice open --namespace NAME shows another one.`),
    table(["Pod", "Container", "Node", "Resource", "Device", "Health"],
      found.devices.map((each) => () => [podLink(each.namespace, each.pod, each.podUID), each.container, each.node, each.resource, each.id, each.health || "–"]), "Devices")]));
}

function showHome() {
  if (fleet.isRead && !fleet.squares.size && fleet.sources.nodedevices?.isForbidden) { if (!byId("namespace")) showNamespace(); } else showFleet();
}

function show() {
  if (!fleet.epoch) { showCurrent(); return; }
  byId("about").textContent = `${fleet.about.cluster}${fleet.about.user ? `, as ${fleet.about.user}` : ""}`;
  showCurrent();
  const [kind, ...rest] = where().parts;
  if (kind === "node" && rest.length === 1) showView("node", { name: rest[0] }, `Node ${rest[0]}`, ofFleet(rest[0]));
  else if (kind === "device" && rest.length === 3) showView("device", { node: rest[0], resource: rest[1], id: rest[2] }, `Device ${rest[2]} of ${rest[0]}`, ofFleet(rest[0], rest[1]));
  else if (kind === "pod" && rest.length === 2) showView("pod", { namespace: rest[0], name: rest[1] }, `Pod ${rest[0]}/${rest[1]}`, () => el("div", {}));
  else showHome();
}

const tokenHere = () => /^#token=([\w-]+)$/.exec(location.hash)?.[1];

async function start() {
  const given = byId("data");
  if (given) { snapshot = JSON.parse(given.textContent); takeAll(snapshot); show(); return; }
  const token = tokenHere();
  fleet.problem = "";
  if (token) {
    history.replaceState(null, "", "#/");
    try {
      const response = await fetch("/login", { method: "POST", body: token });
      // the cookie of an earlier login may work
      if (!response.ok) fleet.problem = (await response.json()).problem;
    } catch {
      return cut();
    }
  }
  load();
}

// an address with a token may be pasted into an open tab
addEventListener("hashchange", () => { if (!snapshot && tokenHere()) start(); else show(); });
addEventListener("visibilitychange", () => { if (document.hidden) pause(); else if (fleet.epoch && !snapshot && !fleet.isCut && !fleet.problem) follow(); });
addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
addEventListener("resize", () => { if (byId("rows")) lay(layout.rows); });
addEventListener("keydown", moveFocus);
setInterval(() => { if (!snapshot) showCurrent(); }, 5000);
start();
