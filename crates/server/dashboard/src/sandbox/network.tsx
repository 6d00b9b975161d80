import type { Schemas } from "../api/client";
import { run } from "../api/sandbox";
import type { Detail } from "../pages/sandbox";
import { useLoad } from "../ui/hooks";
import { Empty, Failure, Loading } from "../ui/parts";

/** Ports of the server's own programs in a sandbox. */
const OWN = new Set([49983, 49999]);

export function Network({ sandbox, domain }: { sandbox: Detail; domain: string | null }) {
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
