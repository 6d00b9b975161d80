// Running a stored run again, where the server runs suites.

import { api, follow } from "./api.js";
import { button, dialog, fill, h } from "./dom.js";

/** The id of a run in what its command prints. */
export const RUN_ID = /\beval-\w{3}-[\d:T-]+\d/;

/** How a run ended that was started from a page. */
const ended = (status) => (status === 0 ? "All passed." : status === 100 ? "Finished, with failures." : `Ended with status ${status}.`);

/** A dialog that runs `page` again and shows what that prints. `open` shows a run. */
export function again(page, open) {
  const errors = (page.stats || {}).errors || 0;
  const only = h("input", { type: "checkbox", name: "errors" });
  const fresh = h("input", { type: "checkbox", name: "fresh" });
  const state = h("p", { class: "run-state", role: "status" });
  const printed = h("pre", { class: "printed", hidden: true, tabindex: "0", "aria-label": "What the command prints" });
  const run = button("Run", "Start it", start, { class: "main" });
  const stop = button("Stop", "Interrupt it; what is done stays stored", () => api.stop().catch((error) => fill(state, error.message)), { disabled: true });
  const box = dialog("Run again", { class: "again" }, h("h2", { text: "Run again" }),
    h("p", { text: "The suite as it is now, with the options of this run, as a new run." }),
    errors > 0 && h("label", {}, only, ` only what ended with an error (${errors}), in this run`),
    h("label", {}, fresh, " ask models even where their answers are in the cache"),
    state, printed, h("p", { class: "buttons" }, stop, button("Close", "It goes on", () => box.close()), run));
  let lines = "";
  let running = false;
  const show = (text) => {
    run.disabled = running;
    stop.disabled = !running;
    const id = lines.match(RUN_ID);
    fill(state, h("b", { text }), id && id[0] !== page.id && [" ", button("Open the new run", id[0], () => {
      box.close();
      open(id[0]);
    })]);
    printed.hidden = !lines;
    printed.textContent = lines;
    printed.scrollTop = printed.scrollHeight;
  };
  async function start() {
    run.disabled = true;
    try {
      await api.rerun(page.id, { errors: only.checked, fresh: fresh.checked });
    } catch (error) {
      fill(state, error.message);
      run.disabled = running;
    }
  }
  box.addEventListener("close", follow({
    begins: () => {
      [lines, running] = ["", true];
      show("Running…");
    },
    prints: (more) => {
      lines += `${more}\n`;
      show("Running…");
    },
    ends: (status) => {
      // The server reports an end where nothing was started, too.
      if (!running) return;
      running = false;
      show(ended(status));
    },
  }));
}
