// Sends what a release from before 2.7 sends to `https://<name>` to the server, as if the names led there and TLS ended in front
// of it. Load it before the release. `fetch` sends no Host but its own, so headers say which sandbox a name means.
const server = new URL(process.env.E2B_API_URL)
const original = globalThis.fetch

globalThis.fetch = (input, init) => {
  const url = new URL(input.url ?? input)
  const sandbox = url.hostname.match(/^(\d+)-([^.]+)\./)
  Object.assign(url, { protocol: server.protocol, host: server.host })
  const request = input instanceof Request ? new Request(url, new Request(input, init)) : new Request(url, init)
  if (sandbox) {
    request.headers.set('E2b-Sandbox-Port', sandbox[1])
    request.headers.set('E2b-Sandbox-Id', sandbox[2])
  }
  return original(request)
}
