import { useState } from "preact/hooks";

import { type Account, type Schemas, change, get } from "../api/client";
import { time } from "../ui/format";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Confirmed, Empty, Failure, Loading, Once, Page, Plain } from "../ui/parts";

type Key = Schemas["ApiKey"];

/** API keys of the team. */
export function Keys({ account }: { account: Account }) {
  useTitle("Keys");
  const [name, setName] = useState("");
  const [made, setMade] = useState<string>();
  const { busy, error: failure, act } = useAction();
  const { data, error, reload } = useLoad((signal) => get<Key[]>("/api-keys", {}, signal), [account.kind]);
  const create = (event: Event) => {
    event.preventDefault();
    void act(async () => {
      const key = await change<Schemas["NewApiKey"]>("POST", "/api-keys", { name });
      setName("");
      setMade(key.key);
    }).then(reload);
  };
  return (
    <Page title="API keys">
      <form class="filters" onSubmit={create}>
        <input required aria-label="Name of a new key" placeholder="Name of a new key" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={busy}>Create</button>
      </form>
      <Failure text={failure ?? error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No keys.</Empty>}
      {data && data.length > 0 && (
        <Plain label="API keys">
          <thead><tr><th scope="col">Name</th><th scope="col">Key</th><th scope="col">Created</th><th scope="col">Last used</th><th scope="col">Actions</th></tr></thead>
          <tbody>
            {data.map((key) => (
              <tr key={key.id}>
                <td>{key.name}</td>
                <td class="mono">{key.mask.prefix}{key.mask.maskedValuePrefix}…{key.mask.maskedValueSuffix}</td>
                <td>{time(key.createdAt)}</td>
                <td>{key.lastUsed ? time(key.lastUsed) : "never"}</td>
                <td><Confirmed label="Delete" name={`Delete ${key.name}`} danger question={`Delete the key ${key.name}? Clients that use it are refused.`} action={() => change("DELETE", `/api-keys/${key.id}`)} then={reload} /></td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
      {made && <Once title="New API key" secret={made} onClose={() => setMade(undefined)} />}
    </Page>
  );
}
