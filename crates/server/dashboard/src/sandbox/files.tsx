import { useEffect, useRef, useState } from "preact/hooks";

import { type Entry, type User, call, fileUrl, readFile, writeFile } from "../api/sandbox";
import { join, message, parent, size, time } from "../ui/format";
import { useAction, useLoad } from "../ui/hooks";
import { Confirmed, Dialog, Empty, Failure, Loading, Plain } from "../ui/parts";

const KEPT = "sandcove-directory";
/** The largest file that is shown. */
const MAX_SHOWN = 15 << 20;
const IMAGES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml" };

export function Files({ id }: { id: string }) {
  const [path, setPath] = useState(sessionStorage.getItem(KEPT) ?? "/home/user");
  const [user, setUser] = useState<User>("user");
  const [shown, setShown] = useState<Entry>();
  const [renamed, setRenamed] = useState<Entry>();
  const [creates, setCreates] = useState(false);
  const [progress, setProgress] = useState<string>();
  const { error: failure, act } = useAction();
  const picker = useRef<HTMLInputElement>(null);
  const { data, error, reload } = useLoad(
    async () => (await call<{ entries?: Entry[] }>(id, "filesystem.Filesystem/ListDir", { path, depth: 1 }, user)).entries ?? [],
    [id, path, user],
  );
  const go = (to: string) => {
    sessionStorage.setItem(KEPT, to);
    setPath(to);
  };
  const upload = (files: FileList | null | undefined) =>
    act(async () => {
      try {
        for (const file of files ?? []) {
          setProgress(`${file.name}: 0 %`);
          await writeFile(id, join(path, file.name), file, user, (share) => setProgress(`${file.name}: ${Math.floor(share * 100)} %`));
        }
      } finally {
        setProgress(undefined);
        if (picker.current) picker.current.value = "";
        reload();
      }
    });
  const entries = [...(data ?? [])].sort((a, b) => Number(isDirectory(b)) - Number(isDirectory(a)) || a.name.localeCompare(b.name));
  return (
    <div
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        void upload(event.dataTransfer?.files);
      }}
    >
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          go(new FormData(event.currentTarget).get("path") as string);
        }}
      >
        <button type="button" onClick={() => go(parent(path))} disabled={path === "/"}>Up</button>
        <input key={path} name="path" class="mono grow" aria-label="Directory" defaultValue={path} />
        <select aria-label="As user" value={user} onChange={(event) => setUser(event.currentTarget.value as User)}>
          <option value="user">as user</option>
          <option value="root">as root</option>
        </select>
        <button type="button" onClick={reload}>Refresh</button>
        <button type="button" onClick={() => setCreates(true)}>New directory</button>
        <button type="button" class="primary" onClick={() => picker.current?.click()}>Upload</button>
        <input ref={picker} type="file" multiple class="hidden" aria-label="Files to upload" tabIndex={-1} onChange={(event) => void upload(event.currentTarget.files)} />
      </form>
      <Failure text={failure ?? error} />
      {progress && <p role="status" class="notice">Uploading {progress}</p>}
      {!data && !error && <Loading />}
      {data && entries.length === 0 && <Empty>The directory is empty. Drop files here to upload them.</Empty>}
      {entries.length > 0 && (
        <Plain label="Files">
          <thead><tr><th scope="col">Name</th><th scope="col">Size</th><th scope="col">Changed</th><th scope="col">Owner</th><th scope="col">Mode</th><th scope="col">Actions</th></tr></thead>
          <tbody>
            {entries.map((entry) => (
              <tr key={entry.path}>
                <td class="mono">
                  <button type="button" class="link" onClick={() => (isDirectory(entry) ? go(entry.path) : setShown(entry))}>{entry.name}{isDirectory(entry) ? "/" : ""}</button>
                  {entry.symlinkTarget && <span class="quiet"> → {entry.symlinkTarget}</span>}
                </td>
                <td>{isDirectory(entry) ? "" : size(Number(entry.size ?? 0))}</td>
                <td>{entry.modifiedTime ? time(entry.modifiedTime) : ""}</td>
                <td>{entry.owner}</td>
                <td class="mono">{entry.permissions}</td>
                <td>
                  <span class="row">
                  {!isDirectory(entry) && <a class="button" href={fileUrl(id, entry.path, user)} download={entry.name} aria-label={`Download ${entry.name}`}>Download</a>}
                  <button type="button" aria-label={`Rename ${entry.name}`} onClick={() => setRenamed(entry)}>Rename</button>
                  <Confirmed label="Delete" name={`Delete ${entry.name}`} danger question={`Delete ${entry.name}?`} action={() => call(id, "filesystem.Filesystem/Remove", { path: entry.path }, user)} then={reload} />
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
      {shown && <Content id={id} entry={shown} user={user} onClose={() => setShown(undefined)} then={reload} />}
      {creates && <Name title="New directory" onClose={() => setCreates(false)} onName={(name) => call(id, "filesystem.Filesystem/MakeDir", { path: join(path, name) }, user).then(reload)} />}
      {renamed && (
        <Name
          title={`Rename ${renamed.name}`}
          value={renamed.name}
          onClose={() => setRenamed(undefined)}
          onName={(name) => call(id, "filesystem.Filesystem/Move", { source: renamed.path, destination: join(parent(renamed.path), name) }, user).then(reload)}
        />
      )}
    </div>
  );
}

function isDirectory(entry: Entry): boolean {
  return entry.type === "FILE_TYPE_DIRECTORY";
}

function Name({ title, value = "", onName, onClose }: { title: string; value?: string; onName: (name: string) => Promise<unknown>; onClose: () => void }) {
  const [name, setName] = useState(value);
  const { busy, error, act } = useAction();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (await act(() => onName(name))) onClose();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <label>Name <input required value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>
        <Failure text={error} />
        <div class="buttons"><button type="button" onClick={onClose}>Cancel</button><button type="submit" class="primary" disabled={busy}>Save</button></div>
      </form>
    </Dialog>
  );
}

/** A file: an image, or text that can be edited. */
function Content({ id, entry, user, onClose, then }: { id: string; entry: Entry; user: User; onClose: () => void; then: () => void }) {
  const image = IMAGES[entry.name.split(".").pop()?.toLowerCase() ?? ""];
  const isLarge = Number(entry.size ?? 0) > MAX_SHOWN;
  const [text, setText] = useState<string>();
  const [source, setSource] = useState<string>();
  const [note, setNote] = useState(isLarge ? "The file is too large to be shown here." : undefined);
  const { busy, error, act } = useAction();
  useEffect(() => {
    if (isLarge) return;
    let url: string | undefined;
    readFile(id, entry.path, user)
      .then(async (content) => {
        if (image) {
          // The kind is ours and never the sandbox's. An SVG in an <img> runs nothing.
          url = URL.createObjectURL(new Blob([content], { type: image }));
          setSource(url);
          return;
        }
        const decoded = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
        try {
          setText(decoded.decode(await content.arrayBuffer()));
        } catch {
          setNote("The file is not text.");
        }
      })
      .catch((failure: unknown) => setNote(message(failure)));
    return () => url && URL.revokeObjectURL(url);
  }, [entry.path]);
  const save = async () => {
    if (await act(() => writeFile(id, entry.path, new Blob([text ?? ""]), user))) {
      then();
      onClose();
    }
  };
  return (
    <Dialog title={entry.name} onClose={onClose}>
      {note && <p class="notice">{note}</p>}
      {source && <img class="preview" src={source} alt={entry.name} />}
      {text !== undefined && <textarea class="editor mono" aria-label={`Content of ${entry.name}`} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />}
      <Failure text={error} />
      <div class="buttons">
        <a class="button" href={fileUrl(id, entry.path, user)} download={entry.name}>Download</a>
        <button type="button" onClick={onClose}>Close</button>
        {text !== undefined && <button type="button" class="primary" disabled={busy} onClick={() => void save()}>Save</button>}
      </div>
    </Dialog>
  );
}
