import { useState } from "preact/hooks";
import { Link } from "wouter-preact";

import { type Schemas, change, get } from "../api/client";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Confirmed, Copy, Empty, Failure, Loading, Page, Plain } from "../ui/parts";

type Volume = Schemas["Volume"];

export function Volumes() {
  useTitle("Volumes");
  const [name, setName] = useState("");
  const { busy, error: failure, act } = useAction();
  const { data, error, reload } = useLoad((signal) => get<Volume[]>("/volumes", {}, signal), [], 10_000);
  const create = (event: Event) => {
    event.preventDefault();
    void act(() => change("POST", "/volumes", { name })).then((done) => {
      if (done) setName("");
      reload();
    });
  };
  return (
    <Page title="Volumes">
      <form class="filters" onSubmit={create}>
        <input required aria-label="Name of a new volume" placeholder="Name of a new volume" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={busy}>Create</button>
      </form>
      <Failure text={failure ?? error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No volumes.</Empty>}
      {data && data.length > 0 && (
        <Plain label="Volumes">
          <thead><tr><th scope="col">Name</th><th scope="col">ID</th><th scope="col">Actions</th></tr></thead>
          <tbody>
            {data.map((volume) => (
              <tr key={volume.volumeID}>
                <td><Link href={`/volumes/${volume.volumeID}`}>{volume.name}</Link></td>
                <td class="mono">{volume.volumeID} <Copy text={volume.volumeID} /></td>
                <td><Confirmed label="Delete" name={`Delete ${volume.name}`} danger question={`Delete ${volume.name} with its files?`} action={() => change("DELETE", `/volumes/${volume.volumeID}`)} then={reload} /></td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
    </Page>
  );
}
