import { useEffect, useState } from "preact/hooks";
import { Link, Redirect, Route, Switch, useLocation } from "wouter-preact";

import { type Account, type Schemas, actFor, get, logOut } from "../api/client";
import { useLoad } from "../ui/hooks";
import { Empty, Failure, Loading } from "../ui/parts";
import { type Theme, apply, theme } from "../ui/theme";
import { Evaluation } from "./evaluation";
import { Evaluations } from "./evaluations";
import { Events } from "./events";
import { Keys } from "./keys";
import { Monitoring } from "./monitoring";
import { NewSandbox } from "./new";
import { Node } from "./node";
import { SandboxPage } from "./sandbox";
import { Sandboxes } from "./sandboxes";
import { Snapshots } from "./snapshots";
import { Teams } from "./teams";
import { Build, TemplatePage } from "./template";
import { Templates } from "./templates";
import { VolumePage } from "./volume";
import { Volumes } from "./volumes";
import { Webhook, Webhooks } from "./webhooks";

interface Entry {
  path: string;
  name: string;
  for?: (account: Account) => boolean;
}

const MENU: Entry[] = [
  { path: "/sandboxes", name: "Sandboxes" },
  { path: "/monitoring", name: "Monitoring" },
  { path: "/templates", name: "Templates" },
  { path: "/snapshots", name: "Snapshots" },
  { path: "/volumes", name: "Volumes" },
  { path: "/events", name: "Events" },
  { path: "/webhooks", name: "Webhooks" },
  { path: "/evaluations", name: "Evaluations" },
  // API keys cannot manage API keys.
  { path: "/keys", name: "Keys", for: ({ kind }) => kind !== "key" },
  { path: "/teams", name: "Teams", for: ({ kind }) => kind === "admin" },
  { path: "/node", name: "Node", for: ({ kind }) => kind === "admin" },
];

/** The frame of all pages, for an account and, if it is the admin's, for one of the teams. */
export function Frame({ account }: { account: Account }) {
  const teams = useLoad<Schemas["AdminTeam"][]>(
    async (signal) => (account.kind === "admin" ? get("/admin/teams", {}, signal) : []),
    [account.kind],
  );
  const [chosen, setChosen] = useState<string>();
  if (account.kind !== "admin") return <Pages account={account} team={account.team?.teamID} />;
  if (teams.error) return <main class="login"><Failure text={teams.error} /></main>;
  if (!teams.data) return <Loading />;
  const team = chosen ?? (teams.data.find((one) => one.isDefault) ?? teams.data[0])?.id;
  actFor(team);
  const select = (
    <label class="team">
      Team
      <select value={team} onChange={(event) => setChosen(event.currentTarget.value)}>
        {teams.data.map((one) => <option key={one.id} value={one.id}>{one.name}</option>)}
      </select>
    </label>
  );
  return <Pages key={team} account={account} team={team} choice={select} />;
}

function Pages({ account, team, choice }: { account: Account; team: string | undefined; choice?: preact.ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const [location] = useLocation();
  useEffect(() => setOpen(false), [location]);
  // Of an admin only: others act for their own team.
  const acts = account.kind === "admin" ? team : undefined;
  const entries = MENU.filter((entry) => entry.for?.(account) ?? true);
  return (
    <div class="frame">
      <a class="skip" href="#content">Skip to the content</a>
      <header class="top">
        <button type="button" class="menu" aria-expanded={open} aria-controls="menu" onClick={() => setOpen(!open)}>Menu</button>
        <Link href="/sandboxes" class="brand"><img src="/dashboard/assets/icon.svg" alt="" width={24} height={24} /> Sandcove</Link>
        <span class="who">{choice ?? account.team?.name}</span>
        <ThemeChoice />
        <button type="button" onClick={() => void logOut()}>Log out</button>
      </header>
      <nav id="menu" class={open ? "open" : ""} aria-label="Pages">
        {entries.map(({ path, name }) => {
          const isHere = location === path || location.startsWith(`${path}/`);
          return <Link key={path} href={path} class={isHere ? "here" : ""} aria-current={isHere ? "page" : undefined}>{name}</Link>;
        })}
        <small class="quiet">version {account.version}</small>
      </nav>
      <main id="content" tabIndex={-1}>
        <Switch>
          <Route path="/sandboxes"><Sandboxes /></Route>
          <Route path="/new"><NewSandbox /></Route>
          {team && <Route path="/monitoring"><Monitoring team={team} /></Route>}
          <Route path="/sandboxes/:id/:tab?">{({ id, tab }) => <SandboxPage key={id} id={id} tab={tab ?? "overview"} account={account} />}</Route>
          <Route path="/templates"><Templates /></Route>
          <Route path="/templates/:id/builds/:build">{({ id, build }) => <Build key={build} id={decodeURIComponent(id)} build={build} />}</Route>
          <Route path="/templates/:id/:tab?">{({ id }) => <TemplatePage key={id} id={decodeURIComponent(id)} />}</Route>
          <Route path="/snapshots"><Snapshots /></Route>
          <Route path="/volumes"><Volumes /></Route>
          <Route path="/volumes/:id">{({ id }) => <VolumePage key={id} id={id} />}</Route>
          <Route path="/events"><Events /></Route>
          <Route path="/webhooks"><Webhooks /></Route>
          <Route path="/evaluations"><Evaluations /></Route>
          <Route path="/evaluations/:id"><Evaluation page="viewer" team={acts} /></Route>
          <Route path="/evaluations/:id/report"><Evaluation page="report" team={acts} /></Route>
          <Route path="/webhooks/:id/:tab?">{({ id }) => <Webhook key={id} id={id} />}</Route>
          {account.kind !== "key" && <Route path="/keys"><Keys account={account} /></Route>}
          {account.kind === "admin" && <Route path="/teams"><Teams /></Route>}
          {account.kind === "admin" && <Route path="/node"><Node /></Route>}
          <Route path="/"><Redirect to="/sandboxes" replace /></Route>
          <Route><h1>Page not found</h1><Empty>There is no page at this address for this login.</Empty></Route>
        </Switch>
      </main>
    </div>
  );
}

function ThemeChoice() {
  const [chosen, setChosen] = useState<Theme>(theme());
  return (
    <select
      aria-label="Colours"
      value={chosen}
      onChange={(event) => {
        const wanted = event.currentTarget.value as Theme;
        setChosen(wanted);
        apply(wanted);
      }}
    >
      <option value="system">System</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}
