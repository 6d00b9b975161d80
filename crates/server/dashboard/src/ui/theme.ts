import { useEffect, useState } from "preact/hooks";

export type Theme = "system" | "light" | "dark";

const NAME = "sandcove-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function theme(): Theme {
  const kept = localStorage.getItem(NAME);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function isDark(): boolean {
  return theme() === "dark" || (theme() === "system" && system.matches);
}

export function apply(wanted: Theme): void {
  if (wanted === "system") localStorage.removeItem(NAME);
  else localStorage.setItem(NAME, wanted);
  show();
}

export function show(): void {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  dispatchEvent(new Event("themechange"));
}

system.addEventListener("change", show);

/** Whether the page is dark, as it changes. */
export function useDark(): boolean {
  const [dark, setDark] = useState(isDark());
  useEffect(() => {
    const changed = () => setDark(isDark());
    addEventListener("themechange", changed);
    return () => removeEventListener("themechange", changed);
  }, []);
  return dark;
}
