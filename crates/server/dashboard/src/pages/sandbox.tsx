import { useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";

import { type Account, ApiError, type Schemas, change, get } from "../api/client";
import { Cells } from "../sandbox/cells";
import { Files } from "../sandbox/files";
import { Logs } from "../sandbox/logs";
import { Network } from "../sandbox/network";
import { Overview } from "../sandbox/overview";
import { TerminalTab } from "../sandbox/terminal";
import { duration } from "../ui/format";
import { useAction, useLoad, useNow, useTitle } from "../ui/hooks";
import { Confirmed, Copy, Dialog, Empty, Failure, Loading, Page, State } from "../ui/parts";
import { EventList } from "./events";

export type Detail = Schemas["SandboxDetail"];

const TABS = ["overview", "terminal", "files", "code", "logs", "network", "events"] as const;
const NAMES: Record<(typeof TABS)[number], string> = {
  overview: "Overview",
  terminal: "Terminal",
  files: "Files",
  code: "Code",
  logs: "Logs",
  network: "Network",
  events: "Events",
};
/** Tabs that need the agent. */
const LIVE = new Set(["terminal", "files", "code"]);

export function SandboxPage({ id, tab, account }: { id: string; tab: string; account: Account }) {
  useTitle(id);
  const { data, error, reload } = useLoad<Detail | null>(
    (signal) =>
      get<Detail>(`/sandboxes/${encodeURIComponent(id)}`, {}, signal).catch((failure: unknown) => {
        if (failure instanceof ApiError && failure.status === 404) return null;
        throw failure;
      }),
    [id],
    5000,
  );
  if (data === undefined) return error ? <Failure text={error} /> : <Loading />;
  const title = <><span class="mono">{id}</span> <Copy text={id} label="the id" /></>;
  if (data === null) {
    return (
      <Page title={title}>
        <Empty>This sandbox has ended, or it belongs to another team.</Empty>
        <h2>Events</h2>
        <EventList path={`/events/sandboxes/${encodeURIComponent(id)}`} />
        <h2>Logs</h2>
        <Logs id={id} ended />
      </Page>
    );
  }
  return (
    <Page title={title} actions={<Actions sandbox={data} reload={reload} />}>
      <Failure text={error} />
      <Facts sandbox={data} />
      <nav class="tabs" aria-label="Parts of the sandbox">
        {TABS.map((one) => (
          <Link key={one} href={`/sandboxes/${id}/${one}`} class={one === tab ? "here" : ""} aria-current={one === tab ? "page" : undefined}>{NAMES[one]}</Link>
        ))}
      </nav>
      {LIVE.has(tab) && data.state === "paused" ? <Paused sandbox={data} reload={reload} /> : <Tab sandbox={data} tab={tab} account={account} />}
    </Page>
  );
}

function Tab({ sandbox, tab, account }: { sandbox: Detail; tab: string; account: Account }) {
  const id = sandbox.sandboxID;
  switch (tab) {
    case "overview":
      return <Overview sandbox={sandbox} />;
    case "terminal":
      return <TerminalTab id={id} />;
    case "files":
      return <Files id={id} />;
    case "code":
      return <Cells id={id} />;
    case "logs":
      return <Logs id={id} />;
    case "network":
      return <Network sandbox={sandbox} domain={account.domain} />;
    case "events":
      return <EventList path={`/events/sandboxes/${id}`} />;
    default:
      return <Empty>This sandbox has no part of this name.</Empty>;
  }
}

function Facts({ sandbox }: { sandbox: Detail }) {
  const now = useNow();
  return (
    <p class="facts">
      <State value={sandbox.state} />
      <span>{sandbox.alias || sandbox.templateID}</span>
      <span>{sandbox.cpuCount} CPU, {sandbox.memoryMB} MiB memory, {sandbox.diskSizeMB} MiB disk</span>
      <span>started {duration(now - new Date(sandbox.startedAt).getTime())} ago</span>
      {sandbox.state === "running" && (
        <span>{sandbox.lifecycle.onTimeout === "pause" ? "pauses" : "ends"} in <strong>{duration(new Date(sandbox.endAt).getTime() - now)}</strong></span>
      )}
    </p>
  );
}

function Paused({ sandbox, reload }: { sandbox: Detail; reload: () => void }) {
  const { busy, error, act } = useAction();
  return (
    <div class="empty">
      <p>The sandbox is paused.</p>
      <Failure text={error} />
      <button type="button" class="primary" disabled={busy} onClick={() => void act(() => resume(sandbox)).then(reload)}>Resume</button>
    </div>
  );
}

const resume = (sandbox: Detail) => change("POST", `/v2/sandboxes/${sandbox.sandboxID}/connect`, { timeout: 300 });

function Actions({ sandbox, reload }: { sandbox: Detail; reload: () => void }) {
  const [, navigate] = useLocation();
  const [dialog, setDialog] = useState<"timeout" | "snapshot">();
  const { busy, error, act } = useAction();
  const path = `/sandboxes/${sandbox.sandboxID}`;
  const isRunning = sandbox.state === "running";
  const fork = async () => {
    const [made] = await change<{ sandbox?: Schemas["Sandbox"]; error?: { message: string } }[]>("POST", `${path}/fork`, { timeout: 300, count: 1 });
    if (!made?.sandbox) throw new Error(made?.error?.message ?? "the fork failed");
    navigate(`/sandboxes/${made.sandbox.sandboxID}/overview`);
  };
  return (
    <>
      <Failure text={error} />
      {isRunning && <button type="button" disabled={busy} onClick={() => setDialog("timeout")}>Set timeout</button>}
      {isRunning && <Confirmed label="Pause" question="Pause this sandbox?" action={() => change("POST", `${path}/pause`, {})} then={reload} />}
      {!isRunning && <button type="button" disabled={busy} onClick={() => void act(() => resume(sandbox)).then(reload)}>Resume</button>}
      {isRunning && <button type="button" disabled={busy} onClick={() => setDialog("snapshot")}>Snapshot</button>}
      {isRunning && <button type="button" disabled={busy} onClick={() => void act(fork)}>Fork</button>}
      <Confirmed label="Kill" danger question="Kill this sandbox? Its files are lost." action={() => change("DELETE", path)} then={() => navigate("/sandboxes")} />
      {dialog === "timeout" && <Timeout path={path} onClose={() => setDialog(undefined)} then={reload} />}
      {dialog === "snapshot" && <Snapshot path={path} onClose={() => setDialog(undefined)} />}
    </>
  );
}

function Timeout({ path, onClose, then }: { path: string; onClose: () => void; then: () => void }) {
  const [minutes, setMinutes] = useState(30);
  const { busy, error, act } = useAction();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (await act(() => change("POST", `${path}/timeout`, { timeout: Math.round(minutes * 60) }))) {
      then();
      onClose();
    }
  };
  return (
    <Dialog title="Set timeout" onClose={onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <label>Minutes from now <input type="number" min={0.5} step="any" required value={minutes} onInput={(event) => setMinutes(Number(event.currentTarget.value))} /></label>
        <Failure text={error} />
        <div class="buttons"><button type="button" onClick={onClose}>Cancel</button><button type="submit" class="primary" disabled={busy}>Set</button></div>
      </form>
    </Dialog>
  );
}

function Snapshot({ path, onClose }: { path: string; onClose: () => void }) {
  const [name, setName] = useState("");
  const [made, setMade] = useState<string>();
  const { busy, error, act } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void act(async () => {
      const snapshot = await change<{ snapshotID: string }>("POST", `${path}/snapshots`, name ? { name } : {});
      setMade(snapshot.snapshotID);
    });
  };
  return (
    <Dialog title="Snapshot" onClose={onClose}>
      {made ? (
        <>
          <p>The snapshot is <code>{made}</code> <Copy text={made} label="the snapshot" /></p>
          <div class="buttons"><button type="button" class="primary" onClick={onClose}>Done</button></div>
        </>
      ) : (
        <form class="form" onSubmit={submit}>
          <label>Name (optional) <input value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>
          <Failure text={error} />
          <div class="buttons"><button type="button" onClick={onClose}>Cancel</button><button type="submit" class="primary" disabled={busy}>Take snapshot</button></div>
        </form>
      )}
    </Dialog>
  );
}
