// The place of the viewer's page in the dashboard: the address of the page around it says what is shown, so that links, reloading and
// walking back work as for every other page.
const RUNS = "/dashboard/evaluations";
const frame = window.parent;

/** The id of the run in the address. */
const named = () => /^\/dashboard\/evaluations\/([^/]+)/.exec(frame.location.pathname)?.[1];

export const place = {
  read: () => ({ id: decodeURIComponent(named() ?? ""), query: new URLSearchParams(frame.location.search) }),
  write(address: string, walkable: boolean) {
    // Somebody may have left for another page of the dashboard.
    if (!named() || address === frame.location.pathname + frame.location.search) return;
    frame.history[walkable ? "pushState" : "replaceState"](null, "", address);
  },
  watch(moved: () => void) {
    frame.addEventListener("popstate", () => named() && moved());
  },
  href: () => frame.location.href,
  /** The page around it has a heading with this text, too. */
  title: (text: string) => frame.dispatchEvent(new CustomEvent("frametitle", { detail: text })),
  runs: RUNS,
  run: (id: string) => `${RUNS}/${encodeURIComponent(id)}`,
  report: (id: string) => `${RUNS}/${encodeURIComponent(id)}/report`,
  target: "_parent",
};
