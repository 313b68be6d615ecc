use std::sync::{Arc, Mutex};

use coreflow_ipc::{
    messages::pulls::RequestHeader,
    record::{Level, Outlet, Record, RecordLayer, Verbosity},
};
use tracing_subscriber::layer::SubscriberExt;

use super::stand::Stand;

struct Lines(Arc<Mutex<Vec<String>>>);

impl Outlet for Lines {
    fn offer(&self, record: Record) -> Result<(), Record> {
        self.0.lock().unwrap().push(record.line());
        Ok(())
    }
}

/// LOG-04, PULL-14, PULL-27, PULL-28, PULL-31: a failure is a line with its class, a realm that leads elsewhere one with
/// its origin, once; neither the token, the target, a header nor the registry's words are in any, at the most
/// verbose level.
#[tokio::test]
async fn no_line_names_what_an_exchange_carried() {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let layer = RecordLayer::new(Lines(Arc::clone(&lines)), Verbosity::new(Level::Trace));
    let _said = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let mut stand = Stand::new().await;
    let headers = || vec![(RequestHeader::Authorization, b"Bearer marked-secret".to_vec())];
    let own = stand.origin.clone();
    for answer in [
        "HTTP/1.1 marked-secret\r\n\r\n".to_owned(),
        String::new(),
        "HTTP/1.1 401 U\r\nWWW-Authenticate: Bearer realm=\"https://auth.test/?marked-secret\"\r\n"
            .to_owned(),
        "HTTP/1.1 401 U\r\nWWW-Authenticate: Bearer realm=\"https://auth.test/v2/marked-secret\"\r\n"
            .to_owned(),
        format!("HTTP/1.1 401 U\r\nWWW-Authenticate: Bearer realm=\"{own}/marked-secret\"\r\n"),
        format!("HTTP/1.1 307 M\r\nLocation: {own}/v2/marked-secret\r\n"),
        format!("HTTP/1.1 200 OK\r\nLink: <{own}/v2/marked-secret>; rel=next\r\n"),
    ] {
        // Each on a connection of its own.
        stand.ask(false, "/v2/marked-secret?marked-secret", headers()).await;
        let mut registry = stand.accept().await;
        assert!(registry.request().await.contains("marked-secret"));
        let fails = !answer.contains("\r\nWWW") && !answer.contains("\r\nL");
        if fails {
            registry.say(answer).await;
            drop(registry);
            stand.failure().await;
        } else {
            registry.say(format!("{answer}Connection: close\r\nContent-Length: 0\r\n\r\n")).await;
            stand.answer().await;
        }
    }
    // A body that is cut.
    stand.give_stream().await;
    stand.ask(false, "/v2/marked-secret", headers()).await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nmarked-secret").await;
    drop(registry);
    let (_, answer) = stand.answer().await;
    let stream = stand.stream(&answer);
    assert!(!stand.rest(stream).await.1);
    // A peer that is out of order.
    stand.ask(false, "/v2/marked-secret", headers()).await;
    stand.stop_in_disorder().await;
    assert!(stand.message().await.is_none());

    let lines = lines.lock().unwrap();
    assert!(lines.iter().all(|line| !line.contains("marked-secret")), "{lines:#?}");
    for (said, times) in [
        ("an image pull failed: protocol", 1),
        ("an image pull failed: closed", 1),
        ("the registry's challenge leads to https://auth.test:", 1),
        ("the registry's token endpoint does not lie under /v2/", 1),
        ("a location header of the registry names", 1),
        ("a link header of the registry names", 1),
        ("the body of an image pull was cut: closed", 1),
        ("pull-link-out-of-order: a second hello", 1),
    ] {
        let count = lines.iter().filter(|line| line.contains(said)).count();
        assert_eq!(count, times, "{said}: {lines:#?}");
    }
}
