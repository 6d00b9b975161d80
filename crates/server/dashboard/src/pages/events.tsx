import { useState } from "preact/hooks";
import { Link } from "wouter-preact";

import { type Schemas, get } from "../api/client";
import { time } from "../ui/format";
import { words } from "../ui/happening";
import { useLoad, useTitle } from "../ui/hooks";
import { Empty, Failure, Loading, Page, Plain, State } from "../ui/parts";

type Event = Schemas["Event"];

const PAGE = 50;
export const TYPES = ["created", "updated", "paused", "resumed", "killed", "checkpointed"].map((name) => `sandbox.lifecycle.${name}`);

export function Events() {
  useTitle("Events");
  return <Page title="Events"><EventList path="/events/sandboxes" named /></Page>;
}

/** Events of a team or of a sandbox, newest first. */
export function EventList({ path, named = false }: { path: string; named?: boolean }) {
  const [type, setType] = useState("");
  const [offset, setOffset] = useState(0);
  const { data, error } = useLoad(
    (signal) => get<Event[]>(path, { limit: PAGE, offset, types: type || undefined }, signal),
    [path, type, offset],
    offset === 0 ? 5000 : undefined,
  );
  return (
    <>
      <div class="filters">
        <select
          aria-label="Type"
          value={type}
          onChange={(event) => {
            setType(event.currentTarget.value);
            setOffset(0);
          }}
        >
          <option value="">All types</option>
          {TYPES.map((one) => <option key={one} value={one}>{one.replace("sandbox.lifecycle.", "")}</option>)}
        </select>
      </div>
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No events.</Empty>}
      {data && data.length > 0 && (
        <Plain label="Events">
          <thead><tr><th scope="col">Time</th><th scope="col">Type</th>{named && <th scope="col">Sandbox</th>}<th scope="col">Details</th></tr></thead>
          <tbody>
            {data.map((event) => (
              <tr key={event.id}>
                <td class="time">{time(event.timestamp)}</td>
                <td><State value={event.type.replace("sandbox.lifecycle.", "")} /></td>
                {named && <td><Link class="mono" href={`/sandboxes/${event.sandboxId}`}>{event.sandboxId}</Link></td>}
                <td class="data">
                  {event.eventData && (
                    <details>
                      <summary>{words(event.eventData)}</summary>
                      <pre>{JSON.stringify(event.eventData, null, 2)}</pre>
                    </details>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
      {data && (offset > 0 || data.length === PAGE) && (
        <div class="buttons start">
          <button type="button" disabled={offset === 0} onClick={() => setOffset(offset - PAGE)}>Newer</button>
          <button type="button" disabled={data.length < PAGE} onClick={() => setOffset(offset + PAGE)}>Older</button>
        </div>
      )}
    </>
  );
}
