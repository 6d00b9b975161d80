import { useState } from "preact/hooks";

import { type Schemas, change, get } from "../api/client";
import { run } from "../api/sandbox";
import type { Detail } from "../pages/sandbox";
import { clock, size } from "../ui/format";
import { useAction, useLoad } from "../ui/hooks";
import { Dialog, Empty, Failure, Loading, Plain } from "../ui/parts";

/** Ports of the server's own programs in a sandbox. */
const OWN = new Set([49983, 49999]);

export function Network({ sandbox, domain }: { sandbox: Detail; domain: string | null }) {
  const [edits, setEdits] = useState(false);
  const rules: Schemas["Network"] = sandbox.network ?? {};
  const lines: [string, string[] | null | undefined][] = [
    ["Allowed", rules.allowOut],
    ["Denied", rules.denyOut],
    ["Name servers", rules.dnsServers],
  ];
  return (
    <>
      <h2>Open ports</h2>
      {sandbox.state === "running" ? <Ports id={sandbox.sandboxID} domain={domain} /> : <Empty>The sandbox is paused.</Empty>}
      {rules.allowPublicTraffic === false && <p class="notice">Ports demand a token: links do not open without it.</p>}
      <h2>Access to the internet</h2>
      <dl class="properties">
        <dt>Internet</dt><dd>{sandbox.allowInternetAccess === false ? "denied" : "allowed, by the rules below"}</dd>
        {lines.map(([name, values]) => [<dt key={name}>{name}</dt>, <dd key={`${name}s`}>{values?.length ? values.join(", ") : "–"}</dd>])}
      </dl>
      {sandbox.state === "running" && <button type="button" onClick={() => setEdits(true)}>Change</button>}
      <h2>Connections</h2>
      {sandbox.state === "running" ? <Connections id={sandbox.sandboxID} /> : <Empty>The sandbox is paused.</Empty>}
      {edits && <Rules sandbox={sandbox} onClose={() => setEdits(false)} />}
    </>
  );
}

function Ports({ id, domain }: { id: string; domain: string | null }) {
  const { data, error } = useLoad((signal) => listening(id, signal), [id], 5000);
  if (!data) return error ? <Failure text={error} /> : <Loading />;
  if (data.length === 0) return <Empty>Nothing listens on a port.</Empty>;
  return (
    <ul class="ports">
      {data.map((port) => (
        <li key={port}>
          <span class="mono">{port}</span>{" "}
          {domain && <a href={`${location.protocol}//${port}-${id}.${domain}/`} target="_blank" rel="noopener noreferrer">{`${port}-${id}.${domain}`}</a>}
        </li>
      ))}
    </ul>
  );
}

/** The last connections through the egress proxy, the newest first. */
function Connections({ id }: { id: string }) {
  const { data, error } = useLoad((signal) => get<Schemas["EgressLog"]>(`/sandboxes/${id}/egress`, {}, signal), [id], 5000);
  if (!data) return error ? <Failure text={error} /> : <Loading />;
  if (data.connections.length === 0) return <Empty>None yet. Only connections that rules for host names, headers or a proxy redirect are listed.</Empty>;
  return (
    <Plain label="Connections">
      <thead>
        <tr>{["When", "Host", "Address", "Decision", "Sent", "Received", "Result"].map((name) => <th key={name} scope="col">{name}</th>)}</tr>
      </thead>
      <tbody>
        {[...data.connections].reverse().map((one) => (
          <tr key={one.number}>
            <td class="time">{clock(one.beganAt)}</td>
            <td class="data">{one.host ?? "–"}</td>
            <td class="mono">{one.address}:{one.port}</td>
            <td>
              {one.allowed ? "allowed" : "denied"}
              {one.rule && <div class="quiet mono">{one.rule.list}: {one.rule.entry}</div>}
            </td>
            <td>{size(one.sentBytes)}</td>
            <td>{size(one.receivedBytes)}</td>
            <td class="data">{[one.proxied && "by the proxy", one.transformed && "headers changed", one.error ?? (one.endedAt ? "" : "open")].filter(Boolean).join(", ") || "ended"}</td>
          </tr>
        ))}
      </tbody>
    </Plain>
  );
}

/** Addresses on which the server reaches a service: all of them, and loopback. */
const REACHED = /^(0{8}|0100007F|0{32}|0{24}01000000|0{16}FFFF0000(0{8}|0100007F))$/;

/** TCP ports on which something listens, from the kernel's tables: state 0A is LISTEN. */
async function listening(id: string, signal: AbortSignal): Promise<number[]> {
  const tables = await run(id, "/bin/cat", ["/proc/net/tcp", "/proc/net/tcp6"], "root", signal);
  const ports = tables
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[3] === "0A")
    .map((fields) => (fields[1] ?? "").split(":"))
    .filter(([address]) => REACHED.test(address ?? ""))
    .map(([, port]) => parseInt(port ?? "", 16));
  return [...new Set(ports)].filter((port) => port > 0 && !OWN.has(port)).sort((a, b) => a - b);
}

/** Rules for what a sandbox reaches. A change replaces all of them, so that those which are not shown here are sent along. */
function Rules({ sandbox, onClose }: { sandbox: Detail; onClose: () => void }) {
  const before: Schemas["Network"] = sandbox.network ?? {};
  const [internet, setInternet] = useState(sandbox.allowInternetAccess !== false);
  const [allowed, setAllowed] = useState((before.allowOut ?? []).join("\n"));
  const [denied, setDenied] = useState((before.denyOut ?? []).join("\n"));
  const { busy, error, act } = useAction();
  const lines = (text: string) => text.split(/[\s,]+/).filter(Boolean);
  const submit = async (event: Event) => {
    event.preventDefault();
    const update: Schemas["NetworkUpdate"] = {
      allowOut: lines(allowed),
      denyOut: lines(denied),
      ...(before.dnsServers ? { dnsServers: before.dnsServers } : {}),
      ...(before.egressProxy ? { egressProxy: before.egressProxy } : {}),
      ...(before.rules ? { rules: before.rules } : {}),
      allow_internet_access: internet,
    };
    if (await act(() => change("PUT", `/sandboxes/${sandbox.sandboxID}/network`, update))) onClose();
  };
  return (
    <Dialog title="Access to the internet" onClose={onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <label class="check"><input type="checkbox" checked={internet} onChange={(event) => setInternet(event.currentTarget.checked)} /> Access to the internet</label>
        <label>Allowed addresses, networks and host names, one a line <textarea rows={3} class="mono" value={allowed} onInput={(event) => setAllowed(event.currentTarget.value)} /></label>
        <label>Denied addresses and networks, one a line <textarea rows={3} class="mono" value={denied} onInput={(event) => setDenied(event.currentTarget.value)} /></label>
        <Failure text={error} />
        <div class="buttons"><button type="button" onClick={onClose}>Cancel</button><button type="submit" class="primary" disabled={busy}>Save</button></div>
      </form>
    </Dialog>
  );
}
