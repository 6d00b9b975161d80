use serde_json::{Value, json};

use crate::support::{BASE, Reply, Server};

fn ids(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json().as_array().unwrap().iter().map(|s| s["sandboxID"].as_str().unwrap().to_owned()).collect()
}

/// Three running and one paused, oldest first.
async fn four(server: &Server) -> Vec<String> {
    let mut made = Vec::new();
    for n in 0..4 {
        made.push(server.id(json!({ "metadata": { "n": n.to_string(), "user id": "a&b=c" } })).await);
    }
    assert_eq!(server.call("POST", &format!("/sandboxes/{}/pause", made[1]), Value::Null).await.code(), 204);
    made
}

#[tokio::test]
async fn lists_are_newest_first_and_filtered_by_state() {
    let server = Server::start().await;
    let made = four(&server).await;
    let newest_first = |indexes: &[usize]| indexes.iter().map(|&i| made[i].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&server.get("/sandboxes").await), newest_first(&[3, 2, 0]));
    for (query, wanted, total) in [
        ("", vec![3, 2, 1, 0], Some("3")),
        ("?state=running,paused", vec![3, 2, 1, 0], Some("3")),
        ("?state=running%2Cpaused&order=asc", vec![0, 1, 2, 3], Some("3")),
        ("?state=running&limit=100", vec![3, 2, 0], Some("3")),
        ("?state=paused", vec![1], None),
    ] {
        let reply = server.get(&format!("/v2/sandboxes{query}")).await;
        assert_eq!(ids(&reply), newest_first(&wanted), "{query}");
        let total_header = reply.headers.get("x-total-running").map(|v| v.to_str().unwrap());
        assert_eq!(total_header, total, "{query}");
        assert!(reply.headers.get("x-next-token").is_none());
    }
    let first = &server.get("/v2/sandboxes").await.json()[0];
    for member in [
        "templateID",
        "sandboxID",
        "clientID",
        "startedAt",
        "endAt",
        "cpuCount",
        "memoryMB",
        "diskSizeMB",
        "state",
        "envdVersion",
        "metadata",
        "volumeMounts",
    ] {
        assert!(first.get(member).is_some(), "{member}");
    }
}

#[tokio::test]
async fn metadata_is_decoded_three_times_and_all_pairs_must_be_equal() {
    let server = Server::start().await;
    let made = four(&server).await;
    let filter = "metadata=user%252520id%3Da%252526b%25253Dc%26n%3D2";
    for list in ["/sandboxes", "/v2/sandboxes"] {
        assert_eq!(ids(&server.get(&format!("{list}?{filter}")).await), [made[2].clone()]);
        assert_eq!(ids(&server.get(&format!("{list}?metadata=n%3D9")).await), Vec::<String>::new());
        assert_eq!(server.get(&format!("{list}?metadata=nonsense")).await.code(), 400);
    }
    let total = server.get(&format!("/v2/sandboxes?{filter}")).await.headers["x-total-running"].clone();
    assert_eq!(total, "1");
}

#[tokio::test]
async fn pages_go_through_everything_once() {
    let server = Server::start().await;
    let made = four(&server).await;
    for order in ["desc", "asc"] {
        let mut seen = Vec::new();
        let mut token = String::new();
        loop {
            let reply = server.get(&format!("/v2/sandboxes?limit=1&order={order}&nextToken={token}")).await;
            assert_eq!(reply.headers["x-total-running"], "3");
            seen.extend(ids(&reply));
            // A new sandbox must not shift the pages after it.
            if seen.len() == 2 && order == "desc" {
                server
                    .call("DELETE", &format!("/sandboxes/{}", server.id(json!({})).await), Value::Null)
                    .await;
            }
            match reply.headers.get("x-next-token") {
                Some(next) => token = next.to_str().unwrap().replace('=', "%3D"),
                None => break,
            }
        }
        let mut expected = made.clone();
        if order == "desc" {
            expected.reverse();
        }
        assert_eq!(seen, expected, "{order}");
    }
    for bad in ["limit=0", "limit=101", "limit=-1", "limit=x", "nextToken=garbage", "order=up", "state=dead"]
    {
        assert_eq!(server.get(&format!("/v2/sandboxes?{bad}")).await.code(), 400, "{bad}");
    }
    let descending = server.get("/v2/sandboxes?limit=1").await.headers["x-next-token"].clone();
    let token = descending.to_str().unwrap().replace('=', "%3D");
    let reply = server.get(&format!("/v2/sandboxes?order=asc&nextToken={token}")).await;
    assert_eq!((reply.code(), reply.message().as_str()), (400, "Invalid next token"));
}

#[tokio::test]
async fn start_times_are_inclusive_and_templates_without_tag() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let started =
        server.get(&format!("/sandboxes/{id}")).await.json()["startedAt"].as_str().unwrap().to_owned();
    let find = async |after: &str| {
        let path = format!("/v2/sandboxes?template=base&startedAfter={}", after.replace(':', "%3A"));
        ids(&server.get(&path).await).len()
    };
    assert_eq!(find(&started).await, 1);
    let time: jiff::Timestamp = started.parse().unwrap();
    assert_eq!(find(&(time - jiff::SignedDuration::from_secs(1)).to_string()).await, 1);
    assert_eq!(find(&(time + jiff::SignedDuration::from_micros(1)).to_string()).await, 0);
    assert_eq!(ids(&server.get(&format!("/v2/sandboxes?template={BASE}")).await).len(), 1);
    assert_eq!(ids(&server.get("/v2/sandboxes?template=unknown").await).len(), 0);
    assert_eq!(server.get("/v2/sandboxes?template=base%3Av1").await.code(), 400);
    assert_eq!(server.get("/v2/sandboxes?startedAfter=yesterday").await.code(), 400);
}
