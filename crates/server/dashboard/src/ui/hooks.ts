import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { message } from "./format";

export interface Loaded<T> {
  data: T | undefined;
  error: string | undefined;
  reload: () => void;
}

/** Loads something, and again every `interval` milliseconds while the page is visible. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, inputs: unknown[], interval?: number): Loaded<T> {
  const [state, setState] = useState<{ data?: T; error?: string }>({});
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify(inputs);
  const shown = useRef(key);
  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    if (shown.current !== key) {
      shown.current = key;
      setState({});
    }
    const again = (): void => {
      if (document.visibilityState === "hidden") {
        timer = setTimeout(again, interval);
        return;
      }
      load(controller.signal)
        .then((data) => !controller.signal.aborted && setState({ data }))
        .catch((error: unknown) => {
          // What was there stays, beside the error.
          if (!controller.signal.aborted) setState((before) => ({ ...before, error: message(error) }));
        })
        .finally(() => {
          if (interval && !controller.signal.aborted) timer = setTimeout(again, interval);
        });
    };
    again();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [key, interval, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  return { data: state.data, error: state.error, reload };
}

/** The time, which passes. */
export function useNow(interval = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), interval);
    return () => clearInterval(timer);
  }, [interval]);
  return now;
}

/** The title of the page. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Sandcove`;
  }, [title]);
}

/** An action that is in progress, and how it failed. */
export function useAction(): { busy: boolean; error: string | undefined; act: (work: () => Promise<unknown>) => Promise<boolean> } {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const act = useCallback(async (work: () => Promise<unknown>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
      return true;
    } catch (failure) {
      setError(message(failure));
      return false;
    } finally {
      setBusy(false);
    }
  }, []);
  return { busy, error, act };
}
