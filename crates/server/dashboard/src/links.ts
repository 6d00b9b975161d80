// Links that lead to the hosted service's dashboard, such as those that the official command line prints. Each leads to our page.

/** Pages by the name that they have there, as a tab or below a team. What costs money there is use here. */
const TABS: Record<string, string> = {
  sandboxes: "/sandboxes",
  templates: "/templates",
  usage: "/monitoring",
  billing: "/monitoring",
  budget: "/monitoring",
  keys: "/keys",
  general: "/keys",
  settings: "/keys",
  account: "/keys",
  personal: "/keys",
  connections: "/keys",
  team: "/teams",
  members: "/teams",
  limits: "/teams",
  byoc: "/node",
  terminal: "/new",
  agents: "/new",
};

/** First parts of our own addresses, behind which anything may be called like one of those pages. */
const OURS = new Set(["sandboxes", "templates", "snapshots", "volumes", "webhooks", "evaluations"]);

/** The path below `/dashboard` that an address of the hosted service stands for; nothing if it is one of ours. */
export function translated(path: string, search: URLSearchParams): string | undefined {
  if (path === "/sbx/new") return `/new?${search.toString()}`;
  const rest = path.replace(/^\/dashboard\/?/, "").replace(/\/$/, "");
  const named = search.get("tab") ?? "sandboxes";
  if (rest === "") return Object.hasOwn(TABS, named) ? TABS[named] : "/sandboxes";
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
    if (tail === parts || kind === undefined || OURS.has(parts[0] ?? "")) continue;
    if (["sandboxes", "templates", "webhooks", "volumes", "events"].includes(kind)) return `/${tail.join("/")}`;
    if (Object.hasOwn(TABS, kind)) return TABS[kind];
  }
  return undefined;
}

/** Goes where the address leads. */
export function follow(): void {
  const there = translated(location.pathname, new URLSearchParams(location.search));
  if (there !== undefined) history.replaceState(null, "", `/dashboard${there.replace(/\?$/, "")}`);
}
