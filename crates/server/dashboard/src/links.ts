// Links that lead to the hosted service's dashboard, such as those that the official command line prints. Each leads to our page.

const TABS: Record<string, string> = {
  sandboxes: "/sandboxes",
  templates: "/templates",
  usage: "/monitoring",
  keys: "/keys",
  team: "/teams",
  members: "/teams",
  limits: "/teams",
  general: "/keys",
  settings: "/keys",
  terminal: "/new",
};

/** The path below `/dashboard` that an address of the hosted service stands for; nothing if it is one of ours. */
export function translated(path: string, search: URLSearchParams): string | undefined {
  if (path === "/sbx/new") return `/new?${search.toString()}`;
  const rest = path.replace(/^\/dashboard\/?/, "").replace(/\/$/, "");
  if (rest === "") return TABS[search.get("tab") ?? "sandboxes"] ?? "/sandboxes";
  if (rest === "terminal") return `/new?${search.toString()}`;
  const inspected = /^inspect\/sandbox\/([^/]+)$/.exec(rest);
  if (inspected) return `/sandboxes/${inspected[1]}`;
  const parts = rest.split("/");
  // The first part may be the name of a team there.
  for (const tail of [parts, parts.slice(1)]) {
    const [kind, id, tab] = tail;
    if (kind === "sandboxes" && id === "list") return "/sandboxes";
    if (kind === "sandboxes" && id === "monitoring") return "/monitoring";
    if (kind === "templates" && (id === "list" || id === "builds")) return "/templates";
    if (kind === "sandboxes" && id && tab === "filesystem") return `/sandboxes/${id}/files`;
    if (kind === "sandboxes" && id && tab === "monitoring") return `/sandboxes/${id}`;
    if (kind === "templates" && id && (tab === "overview" || tab === "tags")) return `/templates/${id}`;
    if (tail !== parts && ["sandboxes", "templates", "keys", "webhooks", "terminal", "volumes", "events"].includes(kind ?? "")) {
      return kind === "terminal" ? "/new" : `/${tail.join("/")}`;
    }
  }
  return undefined;
}

/** Goes where the address leads. */
export function follow(): void {
  const there = translated(location.pathname, new URLSearchParams(location.search));
  if (there !== undefined) history.replaceState(null, "", `/dashboard${there.replace(/\?$/, "")}`);
}
