// Services at a test host: HTTP and HTTPS, HTTP/1.1, HTTP/2 and websockets. They write the headers of each request to a file and answer with
// nothing of them: node echo.mjs CERTIFICATE KEY LOG HTTP-PORT HTTPS-PORT
import { appendFileSync, readFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";

const [certificate, key, log, plain, secure] = process.argv.slice(2);
const note = (request, body) =>
  appendFileSync(
    log,
    JSON.stringify({ version: request.httpVersion, url: request.url, headers: request.headers, length: body.length }) + "\n",
  );

function answer(request, response) {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    note(request, Buffer.concat(pieces));
    if (request.url === "/redirect") response.writeHead(302, { location: "https://elsewhere.example.com/" });
    response.end(`HTTP/${request.httpVersion}\n`);
  });
}

// A websocket as far as the connection goes: what arrives afterwards is sent back.
function upgrade(request, socket) {
  note(request, "");
  socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
  socket.pipe(socket);
  socket.on("error", () => {});
}

const servers = [
  [http.createServer(answer), plain],
  [http2.createSecureServer({ cert: readFileSync(certificate), key: readFileSync(key), allowHTTP1: true }, answer), secure],
];
let waiting = servers.length;
for (const [server, port] of servers) {
  server.on("upgrade", upgrade);
  server.on("error", (error) => { throw error; });
  server.listen(Number(port), "0.0.0.0", () => { if (--waiting === 0) console.log("ready"); });
}
