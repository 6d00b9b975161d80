// The terminal, which pages load when they show one.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

import { keepToPolicy } from "./document";

export interface Screen {
  write(data: Uint8Array | string): void;
  size(): { cols: number; rows: number };
  focus(): void;
  setTheme(dark: boolean): void;
  close(): void;
}

keepToPolicy();

const DARK = { background: "#0b1220", foreground: "#e2e8f0", cursor: "#5eead4", selectionBackground: "#334155" };
const LIGHT = { background: "#ffffff", foreground: "#0f172a", cursor: "#0f766e", cursorAccent: "#ffffff", selectionBackground: "#cbd5e1" };

export function open(parent: HTMLElement, dark: boolean, onInput: (text: string) => void, onResize: (size: { cols: number; rows: number }) => void): Screen {
  const terminal = new Terminal({
    scrollback: 10_000,
    fontSize: 14,
    fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace",
    theme: dark ? DARK : LIGHT,
    minimumContrastRatio: 4.5,
    screenReaderMode: true,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(parent);
  fit.fit();
  terminal.onData(onInput);
  terminal.onBinary(onInput);
  terminal.onResize(onResize);
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(parent);
  return {
    write: (data) => terminal.write(data),
    size: () => ({ cols: terminal.cols, rows: terminal.rows }),
    focus: () => terminal.focus(),
    setTheme: (isDark) => {
      terminal.options.theme = isDark ? DARK : LIGHT;
    },
    close: () => {
      observer.disconnect();
      terminal.dispose();
    },
  };
}
