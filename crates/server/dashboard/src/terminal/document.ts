// xterm.js puts rules into `<style>` elements and `style` attributes, which the page's content security policy forbids: both could come from
// markup. The same through the CSS object model is allowed. So where the terminal is loaded, elements are created that do it that way.

const original = document.createElement.bind(document);

/** Makes elements that are created from now on keep to the policy. */
export function keepToPolicy(): void {
  document.createElement = ((tag: string, options?: ElementCreationOptions) => {
    if (tag === "style") return sheet();
    const element = original(tag, options);
    const set = element.setAttribute.bind(element);
    element.setAttribute = (name, value) => {
      if (name === "style") element.style.cssText = value;
      else set(name, value);
    };
    return element;
  }) as typeof document.createElement;
}

/** An element that stands for rules: its text becomes a sheet of the document. */
function sheet(): HTMLElement {
  const element = original("span");
  element.hidden = true;
  const rules = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, rules];
  const remove = element.remove.bind(element);
  Object.defineProperties(element, {
    textContent: { get: () => "", set: (text: string) => rules.replaceSync(text) },
    sheet: { value: rules },
    remove: {
      value: () => {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== rules);
        remove();
      },
    },
  });
  return element;
}
