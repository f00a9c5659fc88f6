// Search in pages that are opened from a folder. Browsers start no Worker there, so this one runs
// the worker's script in a hidden frame. MkDocs Material finds the file by its name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html>"
      this.ready = new Promise(resolve => {
        this.frame.addEventListener("load", () => {
          const inner = this.frame.contentWindow
          inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = inner.document.createElement("script")
          script.src = new URL(url, location.href)
          script.addEventListener("load", () => resolve(inner))
          inner.document.head.append(script)
        }, { once: true })
      })
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.ready.then(inner => inner.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
