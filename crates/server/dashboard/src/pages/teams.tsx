import { useState } from "preact/hooks";

import { type Schemas, change, get } from "../api/client";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Confirmed, Dialog, Failure, Loading, Page, Plain, State } from "../ui/parts";

type Team = Schemas["AdminTeam"];
type Limits = Team["limits"];

const LIMITS: Record<keyof Limits, string> = {
  concurrentSandboxes: "Sandboxes at once",
  maxLengthHours: "Length of a session, hours",
  maxVcpu: "Processors of a sandbox",
  maxRamMb: "Memory of a sandbox, MiB",
  diskMb: "Disk of a sandbox, MiB",
  pausedSandboxes: "Paused sandboxes",
  pausedInMemory: "Paused sandboxes in memory",
  pausedRamMb: "Memory of paused sandboxes, MiB",
  pausedDiskMb: "Memory of paused sandboxes on disk, MiB",
  snapshots: "Snapshots",
  snapshotsMb: "Disk of snapshots, MiB",
  volumes: "Volumes",
  eventsTtlDays: "Days that events are kept",
  bandwidthMbps: "Traffic of a sandbox in each direction, Mbit/s (0: no limit)",
  connectionsPerSecond: "New connections of a sandbox a second (0: no limit)",
};

/** All teams of the server, and their limits. */
export function Teams() {
  useTitle("Teams");
  const [name, setName] = useState("");
  const [edited, setEdited] = useState<Team>();
  const { busy, error: failure, act } = useAction();
  const { data, error, reload } = useLoad((signal) => get<Team[]>("/admin/teams", {}, signal), [], 10_000);
  const counts = useLoad((signal) => get<Record<string, number>>("/admin/sandboxes/running-counts", {}, signal), [], 10_000);
  const create = (event: Event) => {
    event.preventDefault();
    void act(async () => {
      await change("POST", "/admin/teams", { name });
      setName("");
    }).then(reload);
  };
  const set = (team: Team, update: Schemas["TeamUpdate"]) => change("PATCH", `/admin/teams/${team.id}`, update);
  return (
    <Page title="Teams">
      <form class="filters" onSubmit={create}>
        <input required aria-label="Name of a new team" placeholder="Name of a new team" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={busy}>Create</button>
      </form>
      <Failure text={failure ?? error ?? counts.error} />
      {!data && !error && <Loading />}
      {data && (
        <Plain label="Teams">
          <thead><tr><th scope="col">Name</th><th scope="col">ID</th><th scope="col">State</th><th scope="col">Running</th><th scope="col">Actions</th></tr></thead>
          <tbody>
            {data.map((team) => (
              <tr key={team.id}>
                <td>{team.name}</td>
                <td class="mono">{team.id}</td>
                <td><State value={team.isBanned ? "banned" : team.isBlocked ? "blocked" : "enabled"} /> {team.blockedReason}</td>
                <td>{counts.data?.[team.id] ?? 0} of {team.limits.concurrentSandboxes}</td>
                <td>
                  <span class="row">
                    <button type="button" aria-label={`Limits of ${team.name}`} onClick={() => setEdited(team)}>Limits</button>
                    {team.isBlocked ? (
                      <button type="button" aria-label={`Unblock ${team.name}`} disabled={busy} onClick={() => void act(() => set(team, { isBlocked: false })).then(reload)}>Unblock</button>
                    ) : (
                      <Confirmed label="Block" name={`Block ${team.name}`} danger question={`Block ${team.name}? It can read and delete, and start nothing.`} action={() => set(team, { isBlocked: true, blockedReason: "blocked by the operator" })} then={reload} />
                    )}
                    <Confirmed label="Kill sandboxes" name={`Kill sandboxes of ${team.name}`} danger question={`Kill all sandboxes of ${team.name}?`} action={() => change("POST", `/admin/teams/${team.id}/sandboxes/kill`)} then={counts.reload} />
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
      {edited && <Edit team={edited} save={(limits) => set(edited, { limits }).then(reload)} onClose={() => setEdited(undefined)} />}
    </Page>
  );
}

function Edit({ team, save, onClose }: { team: Team; save: (limits: Limits) => Promise<unknown>; onClose: () => void }) {
  const [limits, setLimits] = useState(team.limits);
  const { busy, error, act } = useAction();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (await act(() => save(limits))) onClose();
  };
  return (
    <Dialog title={`Limits of ${team.name}`} onClose={onClose}>
      <form class="form columns" onSubmit={(event) => void submit(event)}>
        {(Object.keys(LIMITS) as (keyof Limits)[]).map((name) => (
          <label key={name}>
            {LIMITS[name]}
            <input type="number" min={0} step={1} required value={limits[name]} onInput={(event) => setLimits({ ...limits, [name]: event.currentTarget.valueAsNumber })} />
          </label>
        ))}
        <Failure text={error} />
        <div class="buttons"><button type="button" onClick={onClose}>Cancel</button><button type="submit" class="primary" disabled={busy}>Save</button></div>
      </form>
    </Dialog>
  );
}
