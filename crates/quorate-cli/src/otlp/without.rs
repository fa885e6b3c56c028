//! The types of a program without the feature `otlp`. The configuration refuses the key `otlp` there, so no
//! value of these types exists.

use crate::recorder::Measurements;
use crate::{config::OtlpConfig, exit::Failure, log::SubscriberLayer};
use quorate::env::Env;

#[derive(Debug)]
pub(crate) enum Otlp {}

#[derive(Debug)]
pub(crate) enum Sending {}

impl Otlp {
    pub(crate) fn prepare(
        _: &OtlpConfig,
        _worker: &str,
        _group: Option<&str>,
    ) -> Option<(Self, SubscriberLayer)> {
        None
    }

    pub(crate) fn start(self, _: &Env, _: Measurements) -> Result<Sending, Failure> {
        match self {}
    }
}

impl Sending {
    pub(crate) async fn finish(self) {
        match self {}
    }
}
