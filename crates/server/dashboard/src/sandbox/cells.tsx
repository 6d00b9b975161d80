import { useEffect, useRef, useState } from "preact/hooks";

import { type CellEvent, execute } from "../api/sandbox";
import { message } from "../ui/format";
import { Failure } from "../ui/parts";

const LANGUAGES = ["python", "javascript", "typescript", "bash", "r", "java"];

interface Cell {
  number: number;
  code: string;
  language: string;
  events: CellEvent[];
  error?: string;
  busy: boolean;
}

/** Cells of code, whose state lasts in the sandbox from one to the next. */
export function Cells({ id }: { id: string }) {
  const [cells, setCells] = useState<Cell[]>([]);
  const [code, setCode] = useState("");
  const [language, setLanguage] = useState("python");
  const running = useRef<AbortController>();
  useEffect(() => () => running.current?.abort(), []);
  const busy = cells.some((cell) => cell.busy);
  const run = async () => {
    if (busy || !code.trim()) return;
    const controller = new AbortController();
    running.current = controller;
    const cell: Cell = { number: cells.length + 1, code, language, events: [], busy: true };
    const show = (changed: Partial<Cell>) => {
      Object.assign(cell, changed);
      setCells((before) => [...before.filter((one) => one.number !== cell.number), { ...cell }]);
    };
    show({});
    setCode("");
    try {
      for await (const event of execute(id, cell.code, language, controller.signal)) show({ events: [...cell.events, event] });
      show({ busy: false });
    } catch (failure) {
      show({ busy: false, error: controller.signal.aborted ? "interrupted" : message(failure) });
    }
  };
  return (
    <>
      {cells.map((cell) => (
        <section key={cell.number} class="cell" aria-label={`Cell ${cell.number}`}>
          <pre class="code"><code>{cell.code}</code></pre>
          <div class="results" aria-live="polite">
            {cell.events.map((event, index) => <Output key={index} event={event} />)}
            {cell.busy && <p class="quiet">Running…</p>}
            <Failure text={cell.error} />
          </div>
        </section>
      ))}
      <form
        class="form cell"
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <label>
          Code
          <textarea
            class="editor mono small"
            spellcheck={false}
            value={code}
            onInput={(event) => setCode(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                void run();
              }
            }}
          />
        </label>
        <div class="buttons">
          <select aria-label="Language" value={language} onChange={(event) => setLanguage(event.currentTarget.value)}>
            {LANGUAGES.map((one) => <option key={one}>{one}</option>)}
          </select>
          {busy && <button type="button" onClick={() => running.current?.abort()}>Interrupt</button>}
          <button type="submit" class="primary" disabled={busy}>Run (Shift Enter)</button>
        </div>
      </form>
    </>
  );
}

function Output({ event }: { event: CellEvent }) {
  const text = (name: string) => (typeof event[name] === "string" ? (event[name] as string) : undefined);
  if (event.type === "stdout" || event.type === "stderr") return <pre class={event.type}>{text("text")}</pre>;
  if (event.type === "error") return <pre class="stderr">{plain(text("traceback") ?? `${text("name")}: ${text("value")}`)}</pre>;
  if (event.type !== "result") return null;
  const about = text("text") ?? "result";
  const png = text("png");
  const jpeg = text("jpeg");
  const svg = text("svg");
  const html = text("html");
  if (png) return <img class="figure" alt={about} src={`data:image/png;base64,${png.replace(/\s/g, "")}`} />;
  if (jpeg) return <img class="figure" alt={about} src={`data:image/jpeg;base64,${jpeg.replace(/\s/g, "")}`} />;
  if (svg) return <img class="figure" alt={about} src={`data:image/svg+xml;utf8,${encodeURIComponent(svg)}`} />;
  if (html) return <Html html={html} />;
  if (event["json"] !== undefined) return <pre>{JSON.stringify(event["json"], null, 2)}</pre>;
  return <pre>{text("text") ?? text("markdown") ?? text("latex") ?? ""}</pre>;
}

/** The text without the sequences that colour it on a terminal. */
function plain(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\u001b\[[0-9;]*m/g, "");
}

/** HTML of a result, which may be hostile: it is shown in a frame that has an origin of its own and may load nothing. */
function Html({ html }: { html: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const [height, setHeight] = useState(120);
  useEffect(() => {
    const told = (event: MessageEvent) => {
      if (event.source === frame.current?.contentWindow && typeof event.data === "number") setHeight(Math.min(2000, Math.max(40, event.data)));
    };
    addEventListener("message", told);
    return () => removeEventListener("message", told);
  }, []);
  return (
    <iframe
      ref={frame}
      class="html"
      title="Result"
      sandbox="allow-scripts"
      src="/dashboard/assets/frame.html"
      height={height}
      // The frame's origin has no name.
      onLoad={() => frame.current?.contentWindow?.postMessage(html, "*")}
    />
  );
}
