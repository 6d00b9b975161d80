// Calls of the public API. The server puts the session's credential into them; no script ever has it.
import type { components } from "./schema";

export type Schemas = components["schemas"];

export interface Account {
  kind: "key" | "token" | "admin";
  team: { teamID: string; name: string } | null;
  domain: string | null;
  version: string;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | boolean | string[] | undefined>;

let team: string | undefined;
let onLogout: () => void = () => undefined;

/** The team that calls of an admin are for. */
export function actFor(id: string | undefined): void {
  team = id;
}

/** What happens when the session is over. */
export function whenLoggedOut(then: () => void): void {
  onLogout = then;
}

/** Fails with the server's text unless an answer is a success. */
export async function checked(answer: Response): Promise<Response> {
  if (answer.ok) return answer;
  const error = refusal(answer.status, answer.statusText, await answer.text());
  if (answer.status === 401) onLogout();
  throw error;
}

function refusal(status: number, reason: string, text: string): ApiError {
  let message = text || `${status} ${reason}`;
  try {
    message = (JSON.parse(text) as { message?: string }).message ?? message;
  } catch {
    // The text is the message.
  }
  return new ApiError(status, message);
}

/** Sends a file, which a browser streams and does not read into memory. `fetch` does not say how far it is. */
export function upload(method: "POST" | "PUT", url: string, content: Blob, progress?: (share: number) => void): Promise<void> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => progress?.(event.total ? event.loaded / event.total : 1);
    request.onload = () => (request.status < 300 ? done() : failed(refusal(request.status, request.statusText, request.responseText)));
    request.onerror = () => failed(new Error("the connection broke off"));
    request.send(content);
  });
}

export function withQuery(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((one) => search.append(name, one));
    else if (value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

export interface Page<T> {
  data: T;
  next: string | null;
}

/** Attempts of a request that may be repeated. Browsers drop connections when an interface of the machine comes or goes, as those of
 * sandboxes do. */
const ATTEMPTS = 4;

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal, key?: string): Promise<Response> {
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (team) headers["x-team-id"] = team;
  const payload = body === undefined ? null : JSON.stringify(body);
  if (key) headers["idempotency-key"] = key;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await checked(await fetch(`/dashboard/api${path}`, { method, headers, body: payload, signal: signal ?? null }));
    } catch (failure) {
      const isLost = failure instanceof TypeError && !signal?.aborted;
      if (!isLost || attempt === ATTEMPTS || (method !== "GET" && !key)) throw failure;
      await new Promise((done) => setTimeout(done, 200 * attempt));
    }
  }
}

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return (await page<T>(path, query, signal)).data;
}

/** A page of a list, and the token of the next one. */
export async function page<T>(path: string, query?: Query, signal?: AbortSignal): Promise<Page<T>> {
  const answer = await send("GET", withQuery(path, query), undefined, signal);
  return { data: (await answer.json()) as T, next: answer.headers.get("x-next-token") };
}

/** All pages of a list. */
export async function all<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T[]> {
  const rows: T[] = [];
  let token: string | undefined;
  do {
    const { data, next } = await page<T[]>(path, { ...query, limit: 100, nextToken: token }, signal);
    rows.push(...data);
    token = next ?? undefined;
  } while (token);
  return rows;
}

/** Changes something; the answer may be empty. */
export async function change<T = unknown>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<T> {
  const text = await (await send(method, path, body)).text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** Starts a sandbox, once, however often the request is sent. */
export async function start(body: Schemas["NewSandboxV2"]): Promise<Schemas["Sandbox"]> {
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16)).join("");
  return (await (await send("POST", "/v2/sandboxes", body, undefined, key)).json()) as Schemas["Sandbox"];
}

async function session(method: string, body?: unknown): Promise<Response> {
  const init = { method, headers: { "content-type": "application/json" }, body: body === undefined ? null : JSON.stringify(body) };
  return fetch("/dashboard/session", init);
}

export async function account(): Promise<Account | null> {
  const answer = await session("GET");
  // A key that was deleted since is no login either.
  return answer.status === 401 ? null : ((await (await checked(answer)).json()) as Account | null);
}

export async function logIn(credential: string): Promise<Account> {
  const answer = await session("POST", { credential });
  // What the server says is for programs: it speaks of headers.
  if (answer.status === 401) throw new ApiError(401, "The server does not accept this API key or token.");
  return (await (await checked(answer)).json()) as Account;
}

export async function logOut(): Promise<void> {
  await checked(await session("DELETE"));
  onLogout();
}
