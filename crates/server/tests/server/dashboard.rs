use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{KEY, Reply, Server, own_ids};

const AGENT: u16 = 49983;

/// An agent of a hostile sandbox: it repeats what it is sent, and answers with headers that act on a browser.
async fn hostile_agent(server: &Server) {
    let app = Router::new().fallback(any(|request: Request| async move {
        let seen: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        let headers = [
            ("content-type", "text/html"),
            ("set-cookie", "sandcove_dashboard=of-the-attacker; Path=/"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("access-control-allow-origin", "*"),
            ("content-disposition", "inline"),
            ("refresh", "0; url=https://elsewhere.example/"),
        ];
        (headers, format!("{} {}\n{}", request.method(), request.uri(), seen.join("\n")))
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(AGENT, listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
}

/// A browser in which a page of the dashboard is open.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
}

impl<'a> Browser<'a> {
    async fn log_in(server: &'a Server, credential: &str) -> Self {
        let reply = log_in(server, credential).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let cookie = reply.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        Self { server, cookie }
    }

    async fn send(&self, method: &str, path: &str, more: &[(&str, &str)], body: Value) -> Reply {
        let mut headers = vec![("cookie", self.cookie.as_str()), ("sec-fetch-site", "same-origin")];
        headers.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
        headers.extend(more);
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.server.send(method, path, &headers, text).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], Value::Null).await
    }
}

async fn log_in(server: &Server, credential: &str) -> Reply {
    let body = json!({ "credential": credential }).to_string();
    server.send("POST", "/dashboard/session", &[("sec-fetch-site", "same-origin")], body).await
}

#[tokio::test]
async fn a_session_stands_for_a_credential() {
    let server = Server::start().await;
    for (credential, kind, team) in
        [(KEY, "key", true), ("sk_e2b_person", "token", true), ("admin", "admin", false)]
    {
        let browser = Browser::log_in(&server, credential).await;
        let session = browser.get("/dashboard/session").await.json();
        assert_eq!(session["kind"], kind);
        assert_eq!(session["team"].is_object(), team);
        assert!(!session.to_string().contains(credential) || credential == "admin", "{session}");
        // The default team's, for the admin by its id.
        let id = server.app.store().default_team().await.unwrap().id.to_string();
        let more: &[_] = if team { &[] } else { &[("x-team-id", id.as_str())] };
        let list = browser.send("GET", "/dashboard/api/v2/sandboxes", more, Value::Null).await;
        assert_eq!(list.code(), 200, "{}", list.text);
        assert_eq!(browser.send("DELETE", "/dashboard/session", &[], Value::Null).await.status, 204);
        assert_eq!(browser.get("/dashboard/api/v2/sandboxes").await.code(), 401);
        assert_eq!(browser.get("/dashboard/session").await.json(), Value::Null);
    }
    let cookie = log_in(&server, KEY).await.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/dashboard"), "{cookie}");
    for wrong in ["", "e2b_00", "sk_e2b_00", "of the admin"] {
        let reply = log_in(&server, wrong).await;
        assert_eq!(reply.code(), 401, "{}", reply.text);
        assert!(!reply.headers.contains_key("set-cookie"));
    }
    // Behind a proxy with TLS, no page of a sandbox can set a cookie of this name.
    let headers = [("sec-fetch-site", "same-origin"), ("x-forwarded-proto", "https")];
    let body = json!({ "credential": KEY }).to_string();
    let cookie =
        server.send("POST", "/dashboard/session", &headers, body).await.headers["set-cookie"].clone();
    let cookie = cookie.to_str().unwrap();
    assert!(cookie.starts_with("__Host-") && cookie.ends_with("; Path=/; Secure"), "{cookie}");
}

#[tokio::test]
async fn a_deleted_key_ends_its_sessions() {
    let server = Server::start().await;
    let admin = [("x-admin-token", "admin")];
    let team = server.app.store().default_team().await.unwrap().id;
    let path = format!("/admin/teams/{team}/api-keys");
    let made = server.send("POST", &path, &admin, json!({ "name": "k" }).to_string()).await.json();
    let browser = Browser::log_in(&server, made["key"].as_str().unwrap()).await;
    assert_eq!(browser.get("/dashboard/api/v2/sandboxes").await.code(), 200);
    let id = made["id"].as_str().unwrap();
    assert_eq!(server.send("DELETE", &format!("{path}/{id}"), &admin, "").await.status, 204);
    assert_eq!(browser.get("/dashboard/api/v2/sandboxes").await.code(), 401);
}

#[tokio::test]
async fn pages_of_other_origins_use_no_session() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let browser = Browser::log_in(&server, KEY).await;
    let kill = format!("/dashboard/api/sandboxes/{id}");
    // A page of a sandbox may be of the same site, so that the cookie comes with its requests.
    for from in [
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "none"),
        ("origin", "null"),
        ("origin", "http://8080-iabc.localhost:3000"),
    ] {
        let mut headers = vec![from];
        if from.0 == "origin" {
            // A browser that does not say it.
            headers.push(("sec-fetch-site", ""));
        }
        for (method, path) in [
            ("DELETE", kill.as_str()),
            ("GET", "/dashboard/api/v2/sandboxes"),
            ("POST", "/dashboard/session"),
        ] {
            let reply = browser.send(method, path, &headers, Value::Null).await;
            assert_eq!(reply.code(), 400, "{from:?} {method} {path}");
        }
    }
    let bare = [("cookie", browser.cookie.as_str())];
    assert_eq!(server.send("DELETE", &kill, &bare, "").await.code(), 400, "no word of where it comes from");
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    assert_eq!(browser.send("DELETE", &kill, &[], Value::Null).await.status, 204);
}

#[tokio::test]
async fn scripts_get_no_key_and_no_answer_that_acts_on_the_browser() {
    let server = Server::start().await;
    let browser = Browser::log_in(&server, "sk_e2b_person").await;
    // The call answers with a new key.
    assert_eq!(browser.get("/dashboard/api/teams").await.code(), 404);
    let list = browser.get("/dashboard/api/v2/sandboxes").await;
    assert!(list.headers["content-security-policy"].to_str().unwrap().starts_with("sandbox;"));
    assert_eq!(list.headers["cache-control"], "no-store");
    assert!(!list.headers.contains_key("access-control-allow-origin"));
    // A credential of the page's own is not used.
    let forged = [("x-admin-token", "admin"), ("authorization", "Bearer sk_e2b_person"), ("cookie", "")];
    assert_eq!(browser.send("GET", "/dashboard/api/nodes", &forged, Value::Null).await.code(), 401);
    let page = server.send("GET", "/dashboard/sandboxes/iabc/terminal", &[], "").await;
    assert!(page.text.contains("/dashboard/assets/app.js"));
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
    for name in ["viewer", "report"] {
        let framed = server.send("GET", &format!("/dashboard/assets/{name}.html"), &[], "").await;
        assert!(framed.text.contains(&format!("/dashboard/assets/{name}.js")));
        let own = framed.headers["content-security-policy"].to_str().unwrap();
        assert!(own.contains("frame-ancestors 'self'") && own.contains("trusted-types 'none'"), "{own}");
        assert!(own.contains("default-src 'none'; script-src 'self'; style-src 'self';"), "{own}");
        assert_eq!(framed.headers["x-frame-options"], "SAMEORIGIN");
    }
    let script = server.send("GET", "/dashboard/assets/app.js", &[("accept-encoding", "gzip")], "").await;
    assert_eq!(script.headers["content-encoding"], "gzip");
    let tag = script.headers["etag"].to_str().unwrap();
    assert_eq!(
        server.send("GET", "/dashboard/assets/app.js", &[("if-none-match", tag)], "").await.status,
        304
    );
    assert_eq!(server.send("GET", "/dashboard/assets/../main.rs", &[], "").await.status, 404);
}

#[tokio::test]
async fn a_page_reaches_the_agents_of_its_teams_sandboxes_only() {
    let server = Server::start().await;
    hostile_agent(&server).await;
    let sandbox = server.create(json!({ "secure": true })).await;
    let (id, token) = (sandbox["sandboxID"].as_str().unwrap(), sandbox["envdAccessToken"].as_str().unwrap());
    let path = format!("/dashboard/sandbox/{id}/{AGENT}/files?path=%2Fa%20b");
    let browser = Browser::log_in(&server, KEY).await;
    let account = format!("Basic {}", STANDARD.encode("root:"));
    let more = [
        ("authorization", account.as_str()),
        ("x-forwarded-for", "1.2.3.4"),
        ("e2b-sandbox-id", "iother"),
        ("x-api-key", KEY),
    ];
    let reply = browser.send("GET", &path, &more, Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.text.starts_with("GET /files?path=%2Fa%20b\n"), "{}", reply.text);
    assert!(reply.text.contains(&format!("x-access-token: {token}")), "{}", reply.text);
    assert!(reply.text.contains(&account), "{}", reply.text);
    for kept in ["cookie", "sandcove_dashboard", KEY, "sec-fetch", "1.2.3.4", "iother"] {
        assert!(!reply.text.contains(kept), "{kept}: {}", reply.text);
    }
    for gone in
        ["set-cookie", "service-worker-allowed", "clear-site-data", "access-control-allow-origin", "refresh"]
    {
        assert!(!reply.headers.contains_key(gone), "{gone}");
    }
    assert_eq!(reply.headers["content-disposition"], "attachment");
    assert!(reply.headers["content-security-policy"].to_str().unwrap().starts_with("sandbox;"));

    let other = Browser::log_in(&server, server.other_team().await).await;
    assert_eq!(other.get(&path).await.code(), 404);
    let nobody = Browser { server: &server, cookie: "sandcove_dashboard=0".into() };
    assert_eq!(nobody.get(&path).await.code(), 401);
    // Services of sandboxes have origins of their own.
    for place in [format!("{id}/8080/"), format!("{id}/{AGENT}"), format!("{id}/0/"), "i_/49983/".into()] {
        let reply = browser.get(&format!("/dashboard/sandbox/{place}")).await;
        assert!(matches!(reply.code(), 400 | 404), "{place}: {}", reply.text);
    }
    let control = browser.get(&format!("/dashboard/sandbox/{id}/{AGENT}/init")).await;
    assert_eq!(control.status, 404, "{}", control.text);
    // The admin looks at sandboxes of all teams.
    assert_eq!(Browser::log_in(&server, "admin").await.get(&path).await.status, 200);
}

#[tokio::test]
async fn a_page_reaches_the_files_of_its_teams_volumes_only() {
    let server = Server::start().await;
    let made = server.call("POST", "/volumes", json!({ "name": "data" })).await.json();
    let (id, token) = (made["volumeID"].as_str().unwrap(), made["token"].as_str().unwrap());
    let own = Browser::log_in(&server, KEY).await;
    let file = format!("/dashboard/api/volumecontent/{id}/file?path=/page.html&{}", own_ids());
    assert_eq!(own.send("PUT", &file, &[], json!("<p>")).await.status, 201);
    let read = own.get(&file).await;
    assert_eq!((read.status.as_u16(), read.text.as_str()), (200, "\"<p>\""));
    assert_eq!(read.headers["content-disposition"], "attachment");
    assert_eq!(Browser::log_in(&server, "admin").await.get(&file).await.status, 200);
    let other = Browser::log_in(&server, server.other_team().await).await;
    assert_eq!(other.get(&file).await.status, 404);
    // Nor with a token that the page brings along.
    let bearer = format!("Bearer {token}");
    assert_eq!(other.send("GET", &file, &[("authorization", &bearer)], Value::Null).await.status, 404);
    let unknown = file.replace(id, "00000000-0000-4000-8000-000000000000");
    assert_eq!(own.get(&unknown).await.status, 404);
}

#[tokio::test]
async fn a_page_of_an_agent_is_nobody_in_the_origin_of_the_api() {
    let server = Server::start().await;
    hostile_agent(&server).await;
    let sandbox = server.create(json!({ "secure": true })).await;
    let token = sandbox["envdAccessToken"].as_str().unwrap();
    let cookie = "theme=dark; sandcove_dashboard=5a; __Host-sandcove_dashboard=5a";
    let headers = [("x-access-token", token), ("cookie", cookie)];
    let reply = server.send("GET", "/files?path=/page.html", &headers, "").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-security-policy"], "sandbox");
    assert!(!reply.headers.contains_key("set-cookie"));
    assert!(reply.text.contains("cookie: theme=dark"), "{}", reply.text);
    assert!(!reply.text.contains("sandcove_dashboard"), "{}", reply.text);
    // At a host of its own, the answer is the service's.
    let host = format!("{AGENT}-{}.localhost", sandbox["sandboxID"].as_str().unwrap());
    let headers = [("x-access-token", token), ("host", host.as_str()), ("cookie", cookie)];
    let own = server.send("GET", "/files?path=/page.html", &headers, "").await;
    assert!(!own.headers.contains_key("content-security-policy") && own.headers.contains_key("set-cookie"));
    assert!(!own.text.contains("sandcove_dashboard"), "{}", own.text);
}

#[tokio::test]
async fn the_first_page_is_the_dashboard_for_browsers_unless_it_is_switched_off() {
    let html = [("accept", "text/html,*/*")];
    let server = Server::start().await;
    let front = server.send("GET", "/", &html, "").await;
    assert_eq!((front.status.as_u16(), front.headers["location"].to_str().unwrap()), (302, "/dashboard"));
    assert_eq!(server.send("GET", "/", &[], "").await.code(), 404);
    assert_eq!(server.send("GET", "/sbx/new?template=base", &html, "").await.status, 200);
    assert_eq!(server.send("GET", "/dashboards", &html, "").await.code(), 404);
    // What `e2b auth login` opens, and where it sends the browser after it has ended.
    for query in ["next=http://localhost:40000&cliVersion=2.13.0", "state=error&error=%3Cscript%3E"] {
        let page = server.send("GET", &format!("/docs/api/cli?{query}"), &html, "").await;
        assert_eq!((page.status.as_u16(), page.headers.get("location")), (200, None));
        assert!(page.text.contains("E2B_API_KEY") && page.text.contains("E2B_API_URL"));
        assert!(!page.text.contains("<script") && !page.text.contains("40000"), "{}", page.text);
        assert!(page.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    }

    let server = Server::with(|config| config.dashboard = false).await;
    for path in
        ["/", "/dashboard", "/dashboard/session", "/dashboard/assets/app.js", "/sbx/new", "/docs/api/cli"]
    {
        assert_eq!(server.send("GET", path, &html, "").await.code(), 404, "{path}");
    }
}
