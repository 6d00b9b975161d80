// The place of the page: its address, which says what is shown, and the addresses that its links lead to.

export const place = {
  /** The id of the run in the address, and the rest of what it says. */
  read() {
    const path = location.pathname.match(/^\/eval\/([^/]+)/);
    const query = new URLSearchParams(location.search);
    return { id: path ? decodeURIComponent(path[1]) : query.get("evalId") || "", query };
  },
  /** Changes the address; one that can be walked back to gets an entry in the history. */
  write(address, walkable) {
    if (address !== location.pathname + location.search) history[walkable ? "pushState" : "replaceState"](null, "", address);
  },
  /** Calls `moved` when somebody walks back or forward. */
  watch: (moved) => addEventListener("popstate", moved),
  href: () => location.href,
  title: (text) => (document.title = `${text} · Sandcove`),
  runs: "/",
  run: (id) => `/eval/${encodeURIComponent(id)}`,
  report: (id) => `/report?evalId=${encodeURIComponent(id)}`,
  /** What links open in; the page's own place if there is nothing. */
  target: null,
};
