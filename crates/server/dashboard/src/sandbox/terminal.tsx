import { useEffect, useRef, useState } from "preact/hooks";

import { type ProcessEvent, type User, base64, bytes, call, end, stream } from "../api/sandbox";
import type { Screen } from "../terminal/main";
import { message } from "../ui/format";
import { Failure } from "../ui/parts";
import { useDark } from "../ui/theme";

type Started = { event: ProcessEvent };

/** What the page shows before a shell has started. */
const CONNECTING = "connecting";

export function TerminalTab({ id }: { id: string }) {
  const [user, setUser] = useState<User>("user");
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState(CONNECTING);
  return (
    <>
      <div class="filters">
        <label>User{" "}
          <select value={user} onChange={(event) => { setState(CONNECTING); setUser(event.currentTarget.value as User); }}>
            <option value="user">user</option>
            <option value="root">root</option>
          </select>
        </label>
        <button type="button" onClick={() => { setState(CONNECTING); setTurn(turn + 1); }}>New shell</button>
        <span class="quiet" role="status">{state}</span>
      </div>
      <Shell key={`${user}${turn}`} id={id} user={user} state={state} setState={setState} />
    </>
  );
}

function Shell({ id, user, state, setState }: { id: string; user: User; state: string; setState: (state: string) => void }) {
  const place = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen>();
  const [error, setError] = useState<string>();
  const dark = useDark();
  useEffect(() => screen.current?.setTheme(dark), [dark]);
  useEffect(() => {
    const ending = new AbortController();
    const left = () => ending.abort();
    addEventListener("pagehide", left);
    const failed = (failure: unknown) => {
      if (!ending.signal.aborted) setError(message(failure));
    };
    void attach(id, user, place.current!, dark, ending.signal, { setState, opened: (one) => (screen.current = one) }).catch(failed);
    return () => {
      removeEventListener("pagehide", left);
      ending.abort();
      screen.current?.close();
      screen.current = undefined;
    };
  }, []);
  return (
    <>
      <Failure text={error} />
      <div class="shell" ref={place} data-state={state} />
    </>
  );
}

interface Hooks {
  setState: (state: string) => void;
  opened: (screen: Screen) => void;
}

async function attach(id: string, user: User, place: HTMLElement, dark: boolean, signal: AbortSignal, hooks: Hooks): Promise<void> {
  // Not part of the first script: most pages have no terminal.
  const address = "/dashboard/assets/terminal.js";
  const { open } = (await import(address)) as typeof import("../terminal/main");
  if (signal.aborted) return;
  let pid: number | undefined;
  let queue: string[] = [];
  let sending = false;
  const send = async () => {
    if (sending || pid === undefined) return;
    sending = true;
    // In order, and what was typed meanwhile at once.
    while (queue.length > 0 && !signal.aborted) {
      const text = queue.join("");
      queue = [];
      await call(id, "process.Process/SendInput", { process: { pid }, input: { pty: base64(text) } }, user).catch(() => undefined);
    }
    sending = false;
  };
  const type = (text: string) => {
    queue.push(text);
    void send();
  };
  const resize = (size: { cols: number; rows: number }) => {
    if (pid !== undefined) void call(id, "process.Process/Update", { process: { pid }, pty: { size } }, user).catch(() => undefined);
  };
  const screen = open(place, dark, type, resize);
  hooks.opened(screen);
  screen.focus();
  const command = (history.state as { command?: string } | null)?.command;
  if (command) {
    history.replaceState(null, "");
    type(`${command}\n`);
  }
  // The shell ends with the page that has started it.
  signal.addEventListener("abort", () => pid !== undefined && end(id, pid, user));
  const process = { cmd: "/bin/bash", args: ["-i", "-l"], envs: { TERM: "xterm-256color", LANG: "C.UTF-8" } };
  let events = stream<Started>(id, "process.Process/Start", { process, pty: { size: screen.size() } }, user, signal);
  for (let attempt = 0; ; attempt += 1) {
    try {
      for await (const { event } of events) {
        attempt = 0;
        if (event.start) {
          pid = event.start.pid;
          hooks.setState("connected");
          resize(screen.size());
          void send();
        }
        if (event.data?.pty) screen.write(bytes(event.data.pty));
        if (event.end) {
          pid = undefined;
          hooks.setState("the shell has ended");
          return;
        }
      }
    } catch (failure) {
      if (signal.aborted) return;
      if (pid === undefined || attempt >= 5) {
        hooks.setState("disconnected");
        throw failure;
      }
    }
    if (signal.aborted || pid === undefined) return;
    hooks.setState("reconnecting");
    await new Promise((done) => setTimeout(done, 1000 * attempt));
    events = stream<Started>(id, "process.Process/Connect", { process: { pid } }, user, signal);
  }
}
