//! What the server is asked for while it runs, and what that takes.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use larder_serve::control::{Answer, Fields, Job, Service};
use larder_serve::figures::{Gauge, gauge_fields, write_build_info, write_gauges};

use crate::counts::PREFIX;
use crate::ctl::Request;
use crate::key::tag;
use crate::live::Reload;
use crate::mail::Message;
use crate::server::Common;

/// How long a loop may take to forget a URL.
const FORGET: Duration = Duration::from_secs(10);

/// What operators may ask for.
pub(crate) struct Duties {
    pub common: Common,
    pub reload: Reload,
    pub is_stop_asked: bool,
}

impl Duties {
    pub fn now_ms(&self) -> u64 {
        self.common.clock.us() / 1_000
    }

    /// Figures that are not counted by loops.
    fn gauges(&self) -> Vec<Gauge> {
        let mut gauges = self.common.store.gauges();
        let up_s = self.common.clock.us() as f64 / 1e6;
        let (name, help) = ("uptime_seconds", "Time since the start");
        gauges.push(Gauge { name, help, label: None, value: up_s });
        if let Some(meter) = self.common.live.log_meter() {
            let (written, lost) = meter.counts();
            for (name, help, value) in [
                ("log_lines_written_total", "Lines of the access log that were written", written),
                ("log_lines_lost_total", "Lines of the access log that could not be written", lost),
            ] {
                gauges.push(Gauge { name, help, label: None, value: value as f64 });
            }
        }
        let health = self.common.live.setup().health;
        gauges.extend(health.all(self.now_ms()).map(|(origin, is_good)| Gauge {
            name: "origin_up",
            help: "Whether an origin is asked: it could be reached, and checks found it well",
            label: Some(("origin", origin.to_owned())),
            value: f64::from(u8::from(is_good)),
        }));
        if let Some(beside) = &self.common.beside {
            gauges.extend(beside.gauges());
        }
        gauges
    }

    /// All of it for Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        write_build_info(&mut text);
        self.common.shared.sum().write_text(&mut text);
        write_gauges(&mut text, PREFIX, &self.gauges());
        text
    }

    fn stats(&self) -> Fields {
        let mut fields = self.common.shared.sum().fields();
        fields.extend(gauge_fields(&self.gauges()));
        fields
    }

    /// Reads certificates, the log's file and the settings anew, each whatever comes of the others.
    fn reload(&self) -> Job {
        let (reload, live) = (self.reload.clone(), self.common.live.clone());
        let beside = self.common.beside.clone();
        Box::new(move |_| {
            let encrypted = beside.map(|it| it.reload());
            live.reopen_log();
            let report = reload.run().map_err(|error| match &encrypted {
                Some(line) => format!("{line}; settings stay as they were: {error}"),
                None => error,
            })?;
            let mut fields = Fields::from_iter([
                ("changed".to_owned(), report.changed.into()),
                ("needs_restart".to_owned(), report.needs_restart.into()),
            ]);
            if let Some(line) = encrypted {
                fields.insert("encrypted".to_owned(), line.into());
            }
            Ok(fields)
        })
    }

    /// Has a loop forget a URL: it alone may write.
    fn forget(&self, url: Vec<u8>) -> Job {
        let mail = self.common.mail.clone();
        Box::new(move |_| {
            let (say, said) = sync_channel(1);
            mail.post(0, Message::Forget(url, say));
            match said.recv_timeout(FORGET) {
                Ok(was_there) => Ok(Fields::from_iter([("was_kept".to_owned(), was_there.into())])),
                Err(RecvTimeoutError::Disconnected) => Err("the server ended meanwhile".to_owned()),
                Err(RecvTimeoutError::Timeout) => {
                    Err("the loop is held up; see whether it is gone, and ask again".to_owned())
                }
            }
        })
    }
}

impl Service for Duties {
    fn ask(&mut self, line: &[u8]) -> Answer {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(error) => return Answer::Now(Err(error)),
        };
        let store = &self.common.store;
        match request {
            Request::Version => {
                let version = env!("CARGO_PKG_VERSION").into();
                return Answer::Now(Ok(Fields::from_iter([("version".to_owned(), version)])));
            }
            Request::Stats => return Answer::Now(Ok(self.stats())),
            Request::Purge { url, is_soft: false } => return Answer::Later(self.forget(url)),
            Request::Purge { url, is_soft: true } => store.purge_url(&url),
            Request::PurgeTag { tag: text, is_soft } => {
                store.purge_tag(tag(text.as_bytes()), is_soft)
            }
            Request::Flush { is_soft } => store.purge_all(is_soft),
            Request::Reload => return Answer::Later(self.reload()),
            Request::Stop => self.is_stop_asked = true,
        }
        Answer::done()
    }
}
