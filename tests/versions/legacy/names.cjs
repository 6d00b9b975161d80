// Resolves the names of the test's domain to this host, as a name server or `libnss-myhostname` does: `node --require names.cjs`, so
// that programs stay as they are.
const dns = require('node:dns')
const domain = `.${process.env.E2B_DOMAIN.split(':')[0]}`
const original = dns.lookup

dns.lookup = (host, options, callback) => {
  if (!host.endsWith(domain)) return original(host, options, callback)
  const done = typeof options === 'function' ? options : callback
  process.nextTick(() => (options.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4)))
}
