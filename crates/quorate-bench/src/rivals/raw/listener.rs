use super::{super::shared::spawn, wire::RawConnection};
use quorate::{internals::majority, node::Resource};
use tokio::sync::mpsc;

/// A waiter that is subscribed to the releases of one lock at each server.
pub(crate) struct Listener {
    /// For each report of a server, the number of the server and the text, which ends with the owner token.
    reports: mpsc::UnboundedReceiver<(usize, Vec<u8>)>,
    nodes: usize,
}

impl Listener {
    pub(crate) async fn start(urls: &[String], resource: &str) -> Result<Self, String> {
        let resource = Resource::lock(resource).map_err(|error| error.to_string())?;
        let (sender, reports) = mpsc::unbounded_channel();
        for (number, url) in urls.iter().enumerate() {
            let mut connection = RawConnection::listen(url, &resource).await?;
            let sender = sender.clone();
            spawn(async move {
                while let Ok(report) = connection.push().await {
                    if sender.send((number, report)).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { reports, nodes: urls.len() })
    }

    /// Waits until a majority of the servers has reported the release of `owner`. Returns false if the
    /// connections break first.
    pub(crate) async fn released(&mut self, owner: &str) -> bool {
        let mut reported = vec![false; self.nodes];
        while reported.iter().filter(|yes| **yes).count() < majority(self.nodes) {
            let Some((number, report)) = self.reports.recv().await else { return false };
            reported[number] |= report.windows(owner.len()).any(|part| part == owner.as_bytes());
        }
        true
    }
}
