// The agent and the interpreter of a sandbox, through the server's proxy.
import { checked, upload } from "./client";

const AGENT = 49983;
const INTERPRETER = 49999;

export type User = "user" | "root";

export interface Entry {
  name: string;
  type?: string;
  path: string;
  size?: string | number;
  permissions?: string;
  owner?: string;
  modifiedTime?: string;
  symlinkTarget?: string;
}

export type ProcessEvent = {
  start?: { pid: number };
  data?: { stdout?: string; stderr?: string; pty?: string };
  end?: { exitCode?: number; status?: string; error?: string };
};

/** One line of an execution. */
export type CellEvent = { type: string; [name: string]: unknown };

function url(id: string, port: number, path: string): string {
  return `/dashboard/sandbox/${encodeURIComponent(id)}/${port}${path}`;
}

function headers(user: User, more: Record<string, string> = {}): Record<string, string> {
  return { authorization: `Basic ${btoa(`${user}:`)}`, "connect-protocol-version": "1", ...more };
}

/** Calls the agent. */
export async function call<T>(id: string, method: string, body: unknown, user: User = "user"): Promise<T> {
  const init = { method: "POST", headers: headers(user, { "content-type": "application/json" }), body: JSON.stringify(body) };
  return (await (await checked(await fetch(url(id, AGENT, `/${method}`), init))).json()) as T;
}

/** Ends a process, also while the page is being left. */
export function end(id: string, pid: number, user: User): void {
  const body = JSON.stringify({ process: { pid }, signal: "SIGNAL_SIGKILL" });
  const init = { method: "POST", headers: headers(user, { "content-type": "application/json" }), body, keepalive: true };
  void fetch(url(id, AGENT, "/process.Process/SendSignal"), init).catch(() => undefined);
}

/** Calls the agent and reads a stream of messages: each has a byte of flags and four of its length before it. */
export async function* stream<T>(id: string, method: string, body: unknown, user: User, signal: AbortSignal): AsyncGenerator<T> {
  const text = new TextEncoder().encode(JSON.stringify(body));
  const message = new Uint8Array(5 + text.length);
  new DataView(message.buffer).setUint32(1, text.length);
  message.set(text, 5);
  const init = { method: "POST", headers: headers(user, { "content-type": "application/connect+json" }), body: message, signal };
  const answer = await checked(await fetch(url(id, AGENT, `/${method}`), init));
  let rest = new Uint8Array();
  for await (const piece of pieces(answer)) {
    const joined = new Uint8Array(rest.length + piece.length);
    joined.set(rest);
    joined.set(piece, rest.length);
    rest = joined;
    while (rest.length >= 5) {
      const length = new DataView(rest.buffer, rest.byteOffset).getUint32(1);
      if (rest.length < 5 + length) break;
      const value: unknown = JSON.parse(new TextDecoder().decode(rest.subarray(5, 5 + length)));
      const isEnd = ((rest[0] ?? 0) & 2) !== 0;
      rest = rest.slice(5 + length);
      const { error } = value as { error?: { message?: string; code?: string } };
      if (!isEnd) yield value as Awaited<T>;
      else if (error) throw new Error(error.message ?? error.code ?? "the stream broke off");
    }
  }
}

async function* pieces(answer: Response): AsyncGenerator<Uint8Array> {
  const reader = answer.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** Runs a command to its end and returns what it wrote. */
export async function run(id: string, cmd: string, args: string[], user: User, signal: AbortSignal): Promise<string> {
  let output = "";
  const decoder = new TextDecoder();
  for await (const { event } of stream<{ event: ProcessEvent }>(id, "process.Process/Start", { process: { cmd, args } }, user, signal)) {
    if (event.data?.stdout) output += decoder.decode(bytes(event.data.stdout), { stream: true });
  }
  return output;
}

/** Runs a cell; its events come as lines of JSON. */
export async function* execute(id: string, code: string, language: string, signal: AbortSignal): AsyncGenerator<CellEvent> {
  const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ code, language }), signal };
  const answer = await checked(await fetch(url(id, INTERPRETER, "/execute"), init));
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of pieces(answer)) {
    rest += decoder.decode(piece, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield JSON.parse(line) as CellEvent;
  }
  if (rest.trim()) yield JSON.parse(rest) as CellEvent;
}

export function fileUrl(id: string, path: string, user: User): string {
  return url(id, AGENT, `/files?${new URLSearchParams({ path, username: user }).toString()}`);
}

export async function readFile(id: string, path: string, user: User): Promise<Blob> {
  return (await checked(await fetch(fileUrl(id, path, user)))).blob();
}

export function writeFile(id: string, path: string, content: Blob, user: User, progress?: (share: number) => void): Promise<void> {
  return upload("POST", fileUrl(id, path, user), content, progress);
}

export function bytes(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

export function base64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}
