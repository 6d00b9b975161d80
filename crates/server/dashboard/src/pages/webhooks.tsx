import { useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";

import { type Schemas, change, get } from "../api/client";
import { time } from "../ui/format";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Confirmed, Dialog, Empty, Failure, Loading, Once, Page, Plain, State } from "../ui/parts";
import { TYPES } from "./events";

type Hook = Schemas["Webhook"];

export function Webhooks() {
  useTitle("Webhooks");
  const [edits, setEdits] = useState(false);
  const { data, error, reload } = useLoad((signal) => get<Hook[]>("/events/webhooks", {}, signal), [], 10_000);
  return (
    <Page title="Webhooks" actions={<button type="button" class="primary" onClick={() => setEdits(true)}>New webhook</button>}>
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No webhooks. A webhook calls a URL of yours when a sandbox starts, pauses or ends.</Empty>}
      {data && data.length > 0 && (
        <Plain label="Webhooks">
          <thead><tr><th scope="col">Name</th><th scope="col">URL</th><th scope="col">Events</th><th scope="col">State</th></tr></thead>
          <tbody>
            {data.map((hook) => (
              <tr key={hook.id}>
                <td><Link href={`/webhooks/${hook.id}`}>{hook.name}</Link></td>
                <td class="mono data">{hook.url}</td>
                <td>{hook.events.map((event) => event.replace("sandbox.lifecycle.", "")).join(", ")}</td>
                <td><State value={hook.enabled ? "enabled" : "disabled"} /></td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
      {edits && <Edit onClose={() => setEdits(false)} then={reload} />}
    </Page>
  );
}

/** A secret that the browser has made. */
function newSecret(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(32)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function Edit({ hook, onClose, then }: { hook?: Hook; onClose: () => void; then: () => void }) {
  const [name, setName] = useState(hook?.name ?? "");
  const [url, setUrl] = useState(hook?.url ?? "https://");
  const [events, setEvents] = useState<string[]>(hook?.events ?? TYPES);
  const [secret, setSecret] = useState("");
  const [made, setMade] = useState<string>();
  const { busy, error, act } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void act(async () => {
      if (hook) {
        await change("PATCH", `/events/webhooks/${hook.id}`, { name, url, events, ...(secret ? { signatureSecret: secret } : {}) });
        then();
        onClose();
      } else {
        const signatureSecret = secret || newSecret();
        await change("POST", "/events/webhooks", { name, url, events, signatureSecret, enabled: true });
        then();
        if (secret) onClose();
        else setMade(signatureSecret);
      }
    });
  };
  if (made) return <Once title="Secret of the webhook" secret={made} onClose={onClose} />;
  return (
    <Dialog title={hook ? `Change ${hook.name}` : "New webhook"} onClose={onClose}>
      <form class="form" onSubmit={submit}>
        <label>Name <input required value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>
        <label>URL <input required type="url" value={url} onInput={(event) => setUrl(event.currentTarget.value)} /></label>
        <fieldset>
          <legend>Events</legend>
          {TYPES.map((type) => (
            <label class="check" key={type}>
              <input type="checkbox" checked={events.includes(type)} onChange={(event) => setEvents(event.currentTarget.checked ? [...events, type] : events.filter((one) => one !== type))} />
              {type.replace("sandbox.lifecycle.", "")}
            </label>
          ))}
        </fieldset>
        <label>Secret <input value={secret} autocomplete="off" placeholder={hook ? "unchanged" : "a new one is made"} onInput={(event) => setSecret(event.currentTarget.value)} /></label>
        <Failure text={error} />
        <div class="buttons"><button type="button" onClick={onClose}>Cancel</button><button type="submit" class="primary" disabled={busy}>Save</button></div>
      </form>
    </Dialog>
  );
}

export function Webhook({ id }: { id: string }) {
  useTitle("Webhook");
  const [, navigate] = useLocation();
  const [edits, setEdits] = useState(false);
  const [status, setStatus] = useState("");
  const [cursors, setCursors] = useState<(string | undefined)[]>([undefined]);
  const cursor = cursors[cursors.length - 1];
  const path = `/events/webhooks/${encodeURIComponent(id)}`;
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [hook, stats, deliveries] = await Promise.all([
        get<Hook>(path, {}, signal),
        get<Schemas["WebhookStats"]>(`${path}/stats`, {}, signal),
        get<Schemas["Deliveries"]>(`${path}/deliveries`, { limit: 25, cursor, deliveryStatus: status || undefined }, signal),
      ]);
      return { hook, stats, deliveries };
    },
    [id, status, cursor],
    cursor ? undefined : 5000,
  );
  const { busy, error: failure, act } = useAction();
  if (!data) return error ? <Failure text={error} /> : <Loading />;
  const { hook, stats, deliveries } = data;
  return (
    <Page
      title={hook.name}
      actions={
        <>
          <button type="button" onClick={() => setEdits(true)}>Change</button>
          <button type="button" disabled={busy} onClick={() => void act(() => change("PATCH", path, { enabled: !hook.enabled })).then(reload)}>{hook.enabled ? "Disable" : "Enable"}</button>
          <Confirmed label="Delete" danger question={`Delete ${hook.name}?`} action={() => change("DELETE", path)} then={() => navigate("/webhooks")} />
        </>
      }
    >
      <Failure text={failure ?? error} />
      <p class="facts"><State value={hook.enabled ? "enabled" : "disabled"} /> <span class="mono">{hook.url}</span></p>
      <p>Last 24 hours: {stats.total} deliveries, {stats.failed} failed; {Math.round(stats.durationMs.average)} ms on average, {Math.round(stats.durationMs.maximum)} ms at most.</p>
      <h2>Deliveries</h2>
      <div class="filters">
        <select
          aria-label="Outcome"
          value={status}
          onChange={(event) => {
            setStatus(event.currentTarget.value);
            setCursors([undefined]);
          }}
        >
          <option value="">All</option>
          <option value="success">Delivered</option>
          <option value="failed">Failed</option>
        </select>
      </div>
      {deliveries.data.length === 0 && <Empty>No deliveries.</Empty>}
      {deliveries.data.map((delivery) => (
        <section key={delivery.eventId} class="delivery">
          <header>
            <h3>{delivery.eventType.replace("sandbox.lifecycle.", "")} <Link class="mono" href={`/sandboxes/${delivery.sandboxId}`}>{delivery.sandboxId}</Link></h3>
            {hook.enabled && (
              <button
                type="button"
                disabled={busy}
                aria-label={`Send again: ${delivery.eventType.replace("sandbox.lifecycle.", "")} of ${delivery.sandboxId}`}
                onClick={() => void act(() => change("POST", `${path}/deliveries/${delivery.eventId}/redeliver`)).then(reload)}
              >
                Send again
              </button>
            )}
          </header>
          {delivery.attempts.map((attempt) => (
            <details key={attempt.id}>
              <summary><State value={attempt.status} /> {time(attempt.timestamp)}, {attempt.durationMs} ms{attempt.responseHttpStatusCode ? `, status ${attempt.responseHttpStatusCode}` : ""}{attempt.errorMessage ? `, ${attempt.errorMessage}` : ""}</summary>
              <h4>Request</h4>
              <pre>{attempt.requestHeaders}{"\n\n"}{attempt.requestBody}</pre>
              <h4>Response</h4>
              <pre>{attempt.responseHeaders ?? "none"}{"\n\n"}{attempt.responseBody}</pre>
            </details>
          ))}
        </section>
      ))}
      <div class="buttons start">
        <button type="button" disabled={cursors.length === 1} onClick={() => setCursors(cursors.slice(0, -1))}>Newer</button>
        <button type="button" disabled={!deliveries.nextCursor} onClick={() => setCursors([...cursors, deliveries.nextCursor ?? undefined])}>Older</button>
      </div>
      {edits && <Edit hook={hook} onClose={() => setEdits(false)} then={reload} />}
    </Page>
  );
}
