import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { useAction } from "./hooks";

export function Failure({ text }: { text: string | undefined }) {
  return text ? <p class="failure" role="alert">{text}</p> : null;
}

export function Loading() {
  return <p class="quiet" role="status">Loading…</p>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Page({ title, actions, children }: { title: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <>
      <header class="head">
        <h1>{title}</h1>
        <div class="actions">{actions}</div>
      </header>
      {children}
    </>
  );
}

/** A share of something, as a bar with its text; `good` if more of it is better. */
export function Bar({ share, label, text, good }: { share: number | undefined; label: string; text: string; good?: boolean }) {
  if (share === undefined) return <span class="quiet">–</span>;
  const percent = Math.min(100, Math.max(0, share * 100));
  return (
    <span class="bar">
      <meter min={0} max={100} high={good ? 99.9 : 80} low={60} optimum={good ? 100 : 0} value={percent} aria-label={label} aria-valuetext={text} />
      <span class="bartext">{text}</span>
    </span>
  );
}

export function State({ value }: { value: string }) {
  return <span class={`state ${/^[a-z]+$/.test(value) ? value : ""}`}>{value}</span>;
}

/** Text that is copied by a click. */
export function Copy({ text, label }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  // Browsers have it with TLS and on this machine only.
  if (!navigator.clipboard) return null;
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" class="copy" aria-label={`Copy ${label ?? text}`} title="Copy" onClick={() => void copy()}>
      {copied ? "copied" : "copy"}
    </button>
  );
}

/** A dialog that is open while it is there. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onCancel={cancel}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

/** A button that asks before it acts. */
export function Confirmed(props: { label: string; question: string; danger?: boolean; action: () => Promise<unknown>; then?: () => void; name?: string }) {
  const [asks, setAsks] = useState(false);
  const { busy, error, act } = useAction();
  const go = async () => {
    if (await act(props.action)) {
      setAsks(false);
      props.then?.();
    }
  };
  return (
    <>
      <button type="button" class={props.danger ? "danger" : ""} aria-label={props.name} onClick={() => setAsks(true)}>{props.label}</button>
      {asks && (
        <Dialog title={props.question} onClose={() => setAsks(false)}>
          <Failure text={error} />
          <div class="buttons">
            <button type="button" onClick={() => setAsks(false)}>Cancel</button>
            <button type="button" class={props.danger ? "danger primary" : "primary"} disabled={busy} onClick={() => void go()}>{props.label}</button>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** A secret that the server shows once. */
export function Once({ title, secret, onClose }: { title: string; secret: string; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>Copy it now. It is not shown again.</p>
      <p class="secret"><code>{secret}</code> <Copy text={secret} label="the key" /></p>
      <div class="buttons"><button type="button" class="primary" onClick={onClose}>Done</button></div>
    </Dialog>
  );
}

export function Metadata({ values }: { values: Record<string, string> | undefined }) {
  const pairs = Object.entries(values ?? {});
  if (pairs.length === 0) return <span class="quiet">–</span>;
  return <span class="tags">{pairs.map(([name, value]) => <span class="tag" key={name} title={`${name}=${value}`}>{name}={value}</span>)}</span>;
}

/** A table of some rows. On a narrow screen it is scrolled by itself. */
export function Plain({ label, children }: { label: string; children: ComponentChildren }) {
  return <div class="scroll" role="region" aria-label={label} tabIndex={0}><table class="plain">{children}</table></div>;
}
