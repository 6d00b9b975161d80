// A page in a browser: takes the steps of `config.steps` one after another, and answers with what they extracted.

import { createRequire } from "node:module";

const KEYS = { "<enter>": "Enter", "<tab>": "Tab", "<escape>": "Escape" };

/** Texts in which `{{name}}` is a variable; other values as they are. */
const filled = (value, vars) =>
  typeof value === "string" ? value.replace(/\{\{\s*(\w+)\s*\}\}/g, (whole, name) => (name in vars ? String(vars[name]) : whole)) : value;

export default class Browser {
  constructor({ config = {}, label } = {}) {
    this.config = config;
    this.label = label;
  }

  id() {
    return this.label || "browser";
  }

  async callApi(prompt, context = {}) {
    const { headless = true, executablePath, connectOptions, cookies, timeoutMs = 30_000, steps = [], args = [] } = this.config;
    const { chromium } = await playwright();
    const browser = connectOptions
      ? await chromium.connectOverCDP(connectOptions.wsEndpoint || `http://localhost:${connectOptions.debuggingPort || 9222}`)
      : await chromium.launch({ headless, executablePath, args });
    const own = await browser.newContext();
    try {
      if (Array.isArray(cookies)) await own.addCookies(cookies);
      const page = await own.newPage();
      page.setDefaultTimeout(timeoutMs);
      const vars = { ...context.vars, prompt };
      const extracted = {};
      for (const step of steps) await take(page, step, vars, extracted);
      return this.answer(extracted, await page.content());
    } catch (error) {
      return { error: `the page did not answer: ${error.message}` };
    } finally {
      await own.close();
      // A browser that was there before stays.
      if (!connectOptions) await browser.close();
    }
  }

  answer(extracted, finalHtml) {
    const { transformResponse } = this.config;
    if (!transformResponse) return { output: finalHtml };
    let value = new Function("extracted", "finalHtml", `return (${transformResponse})`)(extracted, finalHtml);
    if (typeof value === "function") value = value(extracted, finalHtml);
    return value && typeof value === "object" && ("output" in value || "error" in value) ? value : { output: value };
  }
}

/** The package, from the suite's directory: `playwright` brings a browser, and `playwright-core` uses one that is there. */
async function playwright() {
  const here = createRequire(import.meta.url);
  for (const name of ["playwright", "playwright-core"]) {
    try {
      return here(name);
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  throw new Error("the package `playwright` is missing: npm install playwright");
}

async function take(page, { action, args = {}, name }, vars, extracted) {
  const given = Object.fromEntries(Object.entries(args).map(([key, value]) => [key, filled(value, vars)]));
  switch (action) {
    case "navigate":
      await page.goto(given.url);
      break;
    case "click":
      if (given.optional) await page.click(given.selector, { timeout: 2000 }).catch(() => {});
      else await page.click(given.selector);
      break;
    case "type":
      await type(page, given.selector, given.text);
      break;
    case "extract":
      extracted[name] = given.script
        ? await page.evaluate((body) => new Function(body)(), given.script)
        : await page.textContent(given.selector);
      break;
    case "screenshot":
      await page.screenshot({ path: given.path, fullPage: given.fullPage });
      break;
    case "wait":
      await page.waitForTimeout(given.ms);
      break;
    case "waitForNewChildren": {
      await page.waitForTimeout(given.delay ?? 1000);
      const count = await page.locator(`${given.parentSelector} > *`).count();
      const more = ([selector, before]) => document.querySelectorAll(`${selector} > *`).length > before;
      await page.waitForFunction(more, [given.parentSelector, count], { timeout: given.timeout });
      break;
    }
    default:
      throw new Error(`unknown action \`${action}\``);
  }
}

/** Fills a field; `<enter>`, `<tab>` and `<escape>` in the text are keys. */
async function type(page, selector, text) {
  for (const part of String(text).split(/(<enter>|<tab>|<escape>)/i)) {
    const key = KEYS[part.toLowerCase()];
    if (key) await page.press(selector, key);
    else if (part) await page.fill(selector, part);
  }
}
