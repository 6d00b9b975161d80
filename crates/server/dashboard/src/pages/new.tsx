import { useState } from "preact/hooks";
import { useLocation, useSearch } from "wouter-preact";

import { type Schemas, all, start } from "../api/client";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Failure, Page } from "../ui/parts";

/** Starts a sandbox. Links may name a template and a command, which a user has to agree to. */
export function NewSandbox() {
  useTitle("New sandbox");
  const link = new URLSearchParams(useSearch());
  const [, navigate] = useLocation();
  const templates = useLoad((signal) => all<Schemas["Template"]>("/v2/templates", {}, signal), []);
  const [template, setTemplate] = useState(link.get("template") ?? "base");
  const [minutes, setMinutes] = useState(30);
  const [pauses, setPauses] = useState(false);
  const [internet, setInternet] = useState(true);
  const [metadata, setMetadata] = useState("");
  const [variables, setVariables] = useState("");
  const [command, setCommand] = useState(link.get("command") ?? "");
  const { busy, error, act } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void act(async () => {
      const sandbox = await start({
        templateID: template,
        timeout: Math.round(minutes * 60),
        autoPause: pauses,
        allow_internet_access: internet,
        metadata: pairs(metadata, "metadata"),
        envVars: pairs(variables, "variables"),
      });
      // Not a part of the address: a link must not run a command.
      navigate(`/sandboxes/${sandbox.sandboxID}/${command ? "terminal" : "overview"}`, { state: { command } });
    });
  };
  return (
    <Page title="New sandbox">
      <form class="form" onSubmit={submit}>
        <label>
          Template
          <input list="templates" required value={template} onInput={(event) => setTemplate(event.currentTarget.value)} />
          <datalist id="templates">
            {templates.data?.flatMap((one) => (one.names.length ? one.names : [one.templateID])).map((name) => <option key={name} value={name} />)}
          </datalist>
        </label>
        <label>
          Timeout, minutes
          <input type="number" min={0.5} step="any" required value={minutes} onInput={(event) => setMinutes(Number(event.currentTarget.value))} />
        </label>
        <label class="check"><input type="checkbox" checked={pauses} onChange={(event) => setPauses(event.currentTarget.checked)} /> Pause at the timeout instead of ending</label>
        <label class="check"><input type="checkbox" checked={internet} onChange={(event) => setInternet(event.currentTarget.checked)} /> Access to the internet</label>
        <label>
          <span>Metadata, one <code>name=value</code> per line</span>
          <textarea rows={2} value={metadata} onInput={(event) => setMetadata(event.currentTarget.value)} />
        </label>
        <label>
          <span>Environment variables, one <code>NAME=value</code> per line</span>
          <textarea rows={2} value={variables} onInput={(event) => setVariables(event.currentTarget.value)} />
        </label>
        <label>
          Command to type into its terminal
          <input class="mono" value={command} onInput={(event) => setCommand(event.currentTarget.value)} />
        </label>
        {link.get("command") && <p class="notice">A link has filled in this command. Start the sandbox only if you know it.</p>}
        <Failure text={error ?? templates.error} />
        <div class="buttons"><button type="submit" class="primary" disabled={busy}>Start</button></div>
      </form>
    </Page>
  );
}

function pairs(text: string, what: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`${what}: "${line}" has no name and value with a "=" between them`);
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}
