import { type Schemas, change, get } from "../api/client";
import { size, time } from "../ui/format";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Bar, Confirmed, Empty, Failure, Loading, Page, Plain, State } from "../ui/parts";

/** Of the host; the description of the API leaves these out. */
interface Metrics {
  allocatedCPU: number;
  allocatedMemoryBytes: number;
  cpuPercent: number;
  cpuCount: number;
  memoryUsedBytes: number;
  memoryTotalBytes: number;
  disks: { mountPoint: string; device?: string; filesystemType?: string; usedBytes: number; totalBytes: number }[];
}

type Node = Omit<Schemas["Node"], "metrics"> & { metrics: Metrics };

/** The host: what it has, what sandboxes may use of it, and what they do. */
export function Node() {
  useTitle("Node");
  const { busy, error: failure, act } = useAction();
  const { data, error, reload } = useLoad((signal) => get<Node[]>("/nodes", {}, signal), [], 5000);
  if (!data) return error ? <Failure text={error} /> : <Loading />;
  return (
    <>
      {data.map((node) => {
        const { metrics } = node;
        const set = (status: string) => change("POST", `/nodes/${encodeURIComponent(node.id)}`, { status });
        return (
          <Page
            key={node.id}
            title={<>Node <span class="mono">{node.id}</span></>}
            actions={
              node.status === "draining" ? (
                <button type="button" disabled={busy} onClick={() => void act(() => set("ready")).then(reload)}>Accept sandboxes</button>
              ) : (
                <Confirmed label="Drain" question="Start no more sandboxes on this node?" action={() => set("draining")} then={reload} />
              )
            }
          >
            <Failure text={failure ?? error} />
            <p class="facts"><State value={node.status} /> <span>since {time(node.statusChangedAt)}</span> <span>version {node.version}</span></p>
            <dl class="properties">
              <dt>Processors</dt>
              <dd><Bar share={metrics.cpuPercent / 100} label="Processors in use" text={`${metrics.cpuPercent} % of ${metrics.cpuCount}`} /> <span class="quiet">sandboxes may use {metrics.allocatedCPU}</span></dd>
              <dt>Memory</dt>
              <dd><Bar share={metrics.memoryUsedBytes / (metrics.memoryTotalBytes || 1)} label="Memory in use" text={`${size(metrics.memoryUsedBytes)} of ${size(metrics.memoryTotalBytes)}`} /> <span class="quiet">sandboxes may use {size(metrics.allocatedMemoryBytes)}</span></dd>
              {metrics.disks.map((disk) => [
                <dt key={disk.mountPoint}>Disk <code>{disk.mountPoint}</code></dt>,
                <dd key={`${disk.mountPoint} use`}><Bar share={disk.usedBytes / (disk.totalBytes || 1)} label={`Disk at ${disk.mountPoint}`} text={`${size(disk.usedBytes)} of ${size(disk.totalBytes)}`} /></dd>,
              ])}
              <dt>Sandboxes</dt>
              <dd><Bar share={node.sandboxCount / (node.capacity || 1)} label="Running sandboxes" text={`${node.sandboxCount} of ${node.capacity}`} /> <span class="quiet">{node.sandboxStartingCount ?? 0} starting</span></dd>
              <dt>Starts</dt><dd>{node.createSuccesses} succeeded, {node.createFails} failed since the server started</dd>
              <dt>Processor</dt><dd>{node.machineInfo.cpuModelName} ({node.machineInfo.cpuArchitecture})</dd>
            </dl>
            <h2>Pooled sandboxes</h2>
            {node.pool.length === 0 && <Empty>No template has pooled sandboxes.</Empty>}
            {node.pool.length > 0 && (
              <Plain label="Pooled sandboxes">
                <thead><tr><th scope="col">Template</th><th scope="col">Ready</th><th scope="col">Memory</th><th scope="col">Starts that found one</th><th scope="col">Starts that found none</th></tr></thead>
                <tbody>
                  {node.pool.map((kept) => (
                    <tr key={kept.templateID}>
                      <td>{kept.name ? kept.name : <span class="mono">{kept.templateID}</span>}</td>
                      <td>{kept.ready} of {kept.wanted}</td>
                      <td>{size(kept.memoryBytes)}</td>
                      <td>{kept.hits}</td>
                      <td>{kept.misses}</td>
                    </tr>
                  ))}
                </tbody>
              </Plain>
            )}
          </Page>
        );
      })}
    </>
  );
}
