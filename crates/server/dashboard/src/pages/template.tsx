import { useState } from "preact/hooks";
import { Link } from "wouter-preact";

import { type Schemas, change, get } from "../api/client";
import { Lines } from "../sandbox/logs";
import { duration, time } from "../ui/format";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Copy, Empty, Failure, Loading, Page, Plain, State } from "../ui/parts";

type Line = Schemas["BuildLogEntry"];
type Tag = { tag: string; buildID: string; createdAt: string };

const PAGE = 100;

export function TemplatePage({ id }: { id: string }) {
  useTitle(id);
  const path = `/templates/${encodeURIComponent(id)}`;
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [template, tags] = await Promise.all([
        get<Schemas["TemplateWithBuilds"]>(path, { limit: 100 }, signal),
        get<Tag[]>(`${path}/tags`, {}, signal),
      ]);
      return { template, tags };
    },
    [id],
    5000,
  );
  const { busy, error: failure, act } = useAction();
  if (!data) return error ? <Failure text={error} /> : <Loading />;
  const { template, tags } = data;
  const publish = () => act(() => change("PATCH", `/v2${path}`, { public: !template.public })).then(reload);
  const name = template.names[0] ?? template.templateID;
  return (
    <Page
      title={name}
      actions={
        <>
          <Link class="button primary" href={`/new?template=${encodeURIComponent(name)}`}>Start</Link>
          {!template.isDefault && <button type="button" disabled={busy} onClick={() => void publish()}>{template.public ? "Make private" : "Publish"}</button>}
        </>
      }
    >
      <Failure text={failure ?? error} />
      <dl class="properties">
        <dt>ID</dt><dd><code>{template.templateID}</code> <Copy text={template.templateID} label="the id" /></dd>
        <dt>Names</dt><dd>{template.names.join(", ") || "–"}</dd>
        <dt>Latest build</dt><dd><State value={template.buildStatus} /></dd>
        <dt>Resources</dt><dd>{template.cpuCount} CPU, {template.memoryMB} MiB memory, {template.diskSizeMB} MiB disk</dd>
        <dt>Visibility</dt><dd>{template.public ? "public" : "private"}</dd>
        <dt>Sandboxes started</dt><dd>{template.spawnCount}{template.lastSpawnedAt ? `, last ${time(template.lastSpawnedAt)}` : ""}</dd>
        {template.interpreter && <><dt>Interpreter</dt><dd>{template.interpreter.python}: {template.interpreter.state}{template.interpreter.reason ? `, ${template.interpreter.reason}` : ""}</dd></>}
      </dl>
      <h2>Builds</h2>
      {template.builds.length === 0 ? <Empty>No builds.</Empty> : (
        <Plain label="Builds">
          <thead><tr><th scope="col">Build</th><th scope="col">Status</th><th scope="col">Started</th><th scope="col">Duration</th><th scope="col">Tags</th></tr></thead>
          <tbody>
            {template.builds.map((build) => (
              <tr key={build.buildID}>
                <td><Link class="mono" href={`/templates/${template.templateID}/builds/${build.buildID}`}>{build.buildID}</Link></td>
                <td><State value={build.status} /></td>
                <td>{time(build.createdAt)}</td>
                <td>{build.finishedAt ? duration(new Date(build.finishedAt).getTime() - new Date(build.createdAt).getTime()) : "–"}</td>
                <td>{tags.filter((tag) => tag.buildID === build.buildID).map((tag) => <span class="tag" key={tag.tag}>{tag.tag}</span>)}</td>
              </tr>
            ))}
          </tbody>
        </Plain>
      )}
      <h2>Tags</h2>
      <Tags name={name} tags={tags} builds={template.builds.map((build) => build.buildID)} fixed={template.isDefault} then={reload} />
    </Page>
  );
}

/** Tags, which can be set to any build: this is also how a template goes back to an earlier one. Those of the server's own templates are fixed. */
function Tags({ name, tags, builds, fixed, then }: { name: string; tags: Tag[]; builds: string[]; fixed: boolean | undefined; then: () => void }) {
  const [build, setBuild] = useState(builds[0] ?? "");
  const [tag, setTag] = useState("");
  const { busy, error, act } = useAction();
  const assign = (event: Event) => {
    event.preventDefault();
    // Of a build, the target is the tag that it has, or its id.
    const target = tags.find((one) => one.buildID === build)?.tag ?? build;
    void act(() => change("POST", "/templates/tags", { target: `${name}:${target}`, tags: [tag] })).then(then);
  };
  const remove = (gone: string) => act(() => change("DELETE", "/templates/tags", { name, tags: [gone] })).then(then);
  return (
    <>
      <ul class="ports">
        {tags.map((one) => (
          <li key={one.tag}>
            <span class="tag">{one.tag}</span> <span class="mono">{one.buildID}</span> <span class="quiet">{time(one.createdAt)}</span>{" "}
            {!fixed && <button type="button" aria-label={`Remove tag ${one.tag}`} onClick={() => void remove(one.tag)}>Remove</button>}
          </li>
        ))}
      </ul>
      {builds.length > 0 && !fixed && (
        <form class="filters" onSubmit={assign}>
          <input required aria-label="Tag" placeholder="tag" value={tag} onInput={(event) => setTag(event.currentTarget.value)} />
          <select aria-label="Build" class="mono" value={build} onChange={(event) => setBuild(event.currentTarget.value)}>
            {builds.map((one) => <option key={one}>{one}</option>)}
          </select>
          <button type="submit" disabled={busy}>Set tag</button>
        </form>
      )}
      <Failure text={error} />
    </>
  );
}

/** A build, and its log as it grows. */
export function Build({ id, build }: { id: string; build: string }) {
  useTitle(`Build ${build}`);
  const [level, setLevel] = useState("");
  const path = `/templates/${encodeURIComponent(id)}/builds/${encodeURIComponent(build)}`;
  const [over, setOver] = useState(false);
  const { data, error } = useLoad(
    async (signal) => {
      const status = await get<Schemas["BuildInfo"]>(`${path}/status`, { limit: 1 }, signal);
      const lines = await log(path, level, signal);
      setOver(status.status === "ready" || status.status === "error");
      return { status, lines };
    },
    [id, build, level],
    over ? undefined : 2000,
  );
  if (!data) return error ? <Failure text={error} /> : <Loading />;
  const { status, lines } = data;
  return (
    <Page title={<>Build <span class="mono">{build}</span></>}>
      <Failure text={error} />
      <p class="facts"><State value={status.status} /> <Link href={`/templates/${id}`}>{id}</Link></p>
      {status.reason && <p class="failure">{status.reason.step ? `Step ${status.reason.step}: ` : ""}{status.reason.message}</p>}
      <div class="filters">
        <select aria-label="Level" value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
          <option value="">All levels</option>
          {["debug", "info", "warn", "error"].map((one) => <option key={one} value={one}>{one} and above</option>)}
        </select>
      </div>
      {lines.length === 0 ? <Empty>No lines.</Empty> : <Lines lines={lines.map((line) => ({ ...line, note: line.step ? `step ${line.step}` : "" }))} follows={!over} />}
    </Page>
  );
}

/** All lines of a log. A page of them begins at a time, so what both pages have is left out. */
async function log(path: string, level: string, signal: AbortSignal): Promise<Line[]> {
  const lines: Line[] = [];
  const seen = new Set<string>();
  let cursor: number | undefined;
  for (;;) {
    const { logs } = await get<{ logs: Line[] }>(`${path}/logs`, { limit: PAGE, cursor, level: level || undefined }, signal);
    const fresh = logs.filter((line) => !seen.has(JSON.stringify(line)));
    fresh.forEach((line) => seen.add(JSON.stringify(line)));
    lines.push(...fresh);
    const last = logs[logs.length - 1];
    if (logs.length < PAGE || fresh.length === 0 || !last) return lines;
    cursor = new Date(last.timestamp).getTime();
  }
}
