//! What event loops share, with one another and with the supervisor.

use std::sync::Arc;

use larder::Seconds;
use larder_io::clock::Clock;
use larder_io::epoll::Waker;
use larder_serve::connection_limit::ConnectionLimit;
use larder_serve::lifecycle::Lifecycle;
use larder_serve::log::Log;

use crate::counts::Shared;
use crate::loop_channel::LoopChannels;
use crate::notes::Notes;
use crate::options::Options;
use crate::reload::ConfigWatch;
use crate::store::Store;
use crate::tls_bridge::Running;

/// What loops share, with one another and with who watches over them.
#[derive(Debug, Clone)]
pub struct Common {
    /// As they were at the start, where what is fixed holds. The rest is in `config_watch`.
    pub options: Arc<Options>,
    /// What is in force, and what is known of the origins.
    pub config_watch: Arc<ConfigWatch>,
    /// What is kept.
    pub store: Arc<Store>,
    /// Where loops show what they counted.
    pub shared: Arc<Shared>,
    /// Connections by address, where they are counted.
    pub connections: Arc<ConnectionLimit>,
    /// Messages.
    pub channels: LoopChannels,
    /// The time.
    pub clock: Clock,
    /// Whether loops go on.
    pub lifecycle: Arc<Lifecycle>,
    /// What happens.
    pub log: Log,
    /// Wakes who watches over the loops.
    pub waker: Arc<Waker>,
    /// Event loops note exchanges for the page, if there is one.
    pub notes: Option<Arc<Notes>>,
    /// Who makes connections that are encrypted.
    pub tls_bridge: Option<Arc<dyn Running>>,
}

/// The moment, as the engine has it.
pub(crate) fn seconds(clock: &Clock) -> Seconds {
    Seconds(u32::try_from(clock.unix_us(clock.us()) / 1_000_000).unwrap_or(u32::MAX - 1))
}
