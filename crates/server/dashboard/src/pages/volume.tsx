import { useRef, useState } from "preact/hooks";

import { type Schemas, change, get, upload, withQuery } from "../api/client";
import { join, parent, size, time } from "../ui/format";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Confirmed, Empty, Failure, Loading, Page, Plain } from "../ui/parts";

type Entry = Schemas["Entry"];

/** The account `user` of sandboxes, which new files belong to. */
const OWNER = { uid: 1000, gid: 1000 };

/** The files of a volume. The server puts the volume's token into these requests. */
export function VolumePage({ id }: { id: string }) {
  const content = `/volumecontent/${encodeURIComponent(id)}`;
  const [path, setPath] = useState("/");
  const [name, setName] = useState("");
  const [progress, setProgress] = useState<string>();
  const { busy, error: failure, act } = useAction();
  const picker = useRef<HTMLInputElement>(null);
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [volumes, entries] = await Promise.all([
        get<Schemas["Volume"][]>("/volumes", {}, signal),
        get<Entry[]>(`${content}/dir`, { path }, signal),
      ]);
      return { name: volumes.find((volume) => volume.volumeID === id)?.name ?? id, entries };
    },
    [id, path],
  );
  useTitle(data?.name ?? id);
  const send = (files: FileList | null) =>
    act(async () => {
      try {
        for (const file of files ?? []) {
          const url = withQuery(`/dashboard/api${content}/file`, { path: join(path, file.name), ...OWNER });
          await upload("PUT", url, file, (share) => setProgress(`${file.name}: ${Math.floor(share * 100)} %`));
        }
      } finally {
        setProgress(undefined);
        if (picker.current) picker.current.value = "";
        reload();
      }
    });
  const create = (event: Event) => {
    event.preventDefault();
    void act(async () => {
      await change("POST", withQuery(`${content}/dir`, { path: join(path, name), ...OWNER }));
      setName("");
    }).then(reload);
  };
  const entries = [...(data?.entries ?? [])].sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory") || a.name.localeCompare(b.name));
  return (
    <Page title={<>Volume {data?.name ?? id}</>}>
      <form class="filters" onSubmit={create}>
        <button type="button" onClick={() => setPath(parent(path))} disabled={path === "/"}>Up</button>
        <span class="mono grow">{path}</span>
        <input required aria-label="Name of a new directory" placeholder="Name of a new directory" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        <button type="submit" disabled={busy}>Create</button>
        <button type="button" class="primary" onClick={() => picker.current?.click()}>Upload</button>
        <input ref={picker} type="file" multiple class="hidden" aria-label="Files to upload" tabIndex={-1} onChange={(event) => void send(event.currentTarget.files)} />
      </form>
      <Failure text={failure ?? error} />
      {progress && <p role="status" class="notice">Uploading {progress}</p>}
      {!data && !error && <Loading />}
      {data && entries.length === 0 && <Empty>The directory is empty.</Empty>}
      {entries.length > 0 && (
        <Plain label="Files">
          <thead><tr><th scope="col">Name</th><th scope="col">Size</th><th scope="col">Changed</th><th scope="col">Owner</th><th scope="col">Actions</th></tr></thead>
          <tbody>
            {entries.map((entry) => (
              <tr key={entry.path}>
                <td class="mono">
                  {entry.type === "directory" ? <button type="button" class="link" onClick={() => setPath(entry.path)}>{entry.name}/</button> : entry.name}
                  {entry.target && <span class="quiet"> → {entry.target}</span>}
                </td>
                <td>{entry.type === "file" ? size(entry.size) : ""}</td>
                <td>{time(entry.mtime)}</td>
                <td>{entry.uid}:{entry.gid}</td>
                <td>
                  <span class="row">
                    {entry.type === "file" && <a class="button" href={withQuery(`/dashboard/api${content}/file`, { path: entry.path })} download={entry.name} aria-label={`Download ${entry.name}`}>Download</a>}
                    <Confirmed label="Delete" name={`Delete ${entry.name}`} danger question={`Delete ${entry.name}?`} action={() => change("DELETE", withQuery(`${content}/path`, { path: entry.path }))} then={reload} />
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
    </Page>
  );
}
