//! Lookups of a map that load on a miss. See `flight` for how callers share a load.
//!
//! ```text
//! hit -> value
//! miss -> first: load -> value: store it, pass its bytes to those who wait
//!                     -> error: pass it to those who wait; nothing is stored
//!      -> another loads: wait for its value or error; neither comes: begin again
//! ```
//!
//! A load's error reaches every caller that waits with the same type of error. A caller with another
//! type, or one that cannot fail, begins again.

use std::any::Any;
use std::borrow::Borrow;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::{Inner, Map};
use crate::codec::{Key, Value};
use crate::expiry::{Ends, Expiry};
use crate::flight::{Begin, Token, Waiter};

/// How long a load keeps other callers from loading the same key, in seconds.
const LOAD_S_MAX: u32 = 30;

/// What a load brought: a value's bytes, an object, or an error, both of any type.
#[derive(Debug, Clone)]
pub(super) enum Landed {
    Value(Arc<[u8]>),
    Object(Arc<dyn Any + Send + Sync>),
    Failed(Arc<dyn Any + Send + Sync>),
}

/// A map that loads fill with values of `V`.
pub(super) trait Fill<V> {
    fn inner(&self) -> &Inner;

    /// The value of a key.
    fn look_up(&self, key: &[u8]) -> Option<V>;

    /// The value that another caller's load brought; `None` if it is of another type.
    fn shared(landed: &Landed) -> Option<V>;

    /// Stores the loaded value of a key, and passes it to those who wait.
    fn store(&self, token: Token<Landed>, key: &[u8], value: V, ends: Ends) -> V;
}

/// The result of a lookup that may load.
enum Found<V> {
    Value(V),
    Lead(Token<Landed>),
    Wait(Waiter<Landed>),
    Full,
}

/// What a caller who waited does next.
enum Next<V, E> {
    Return(Result<V, Arc<E>>),
    /// Load, and do not store: what landed is no value of this type.
    Load,
    BeginAgain,
}

impl<V, E: Send + Sync + 'static> Next<V, E> {
    fn after<M: Fill<V>>(landed: Option<Landed>) -> Self {
        match landed {
            Some(Landed::Failed(error)) => match error.downcast::<E>() {
                Ok(error) => Next::Return(Err(error)),
                Err(_) => Next::BeginAgain,
            },
            Some(landed) => match M::shared(&landed) {
                Some(value) => Next::Return(Ok(value)),
                None => Next::Load,
            },
            None => Next::BeginAgain,
        }
    }
}

/// The value of a key, or that of `load`, for threads.
pub(super) fn load<V, T: Into<Expiry>, E: Send + Sync + 'static, M: Fill<V>>(
    map: &M,
    key: &[u8],
    load: impl FnOnce() -> Result<(V, T), E>,
) -> Result<V, Arc<E>> {
    loop {
        let mut waiter = match begin(map, key) {
            Found::Value(value) => return Ok(value),
            Found::Lead(token) => return land(map, token, load()),
            Found::Full => break,
            Found::Wait(waiter) => waiter,
        };
        // A load that needs its own result would wait forever.
        if waiter.is_led_here() {
            break;
        }
        let Poll::Ready(landed) = waiter.wait_for(Duration::from_secs(LOAD_S_MAX.into())) else {
            break;
        };
        match Next::after::<M>(landed) {
            Next::Return(result) => return result,
            Next::Load => break,
            Next::BeginAgain => {}
        }
    }
    load().map(|(value, _)| value).map_err(Arc::new)
}

/// The value of a key, or that of `load`, for tasks.
pub(super) async fn load_async<V, T: Into<Expiry>, E: Send + Sync + 'static, M: Fill<V>>(
    map: &M,
    key: &[u8],
    load: impl Future<Output = Result<(V, T), E>>,
) -> Result<V, Arc<E>> {
    loop {
        match begin(map, key) {
            Found::Value(value) => return Ok(value),
            Found::Lead(token) => return land(map, token, load.await),
            Found::Full => break,
            Found::Wait(waiter) => match Next::after::<M>(waiter.await) {
                Next::Return(result) => return result,
                Next::Load => break,
                Next::BeginAgain => {}
            },
        }
    }
    load.await.map(|(value, _)| value).map_err(Arc::new)
}

fn begin<V>(map: &impl Fill<V>, key: &[u8]) -> Found<V> {
    if let Some(value) = map.look_up(key) {
        return Found::Value(value);
    }
    let Inner { flight, clock, .. } = map.inner();
    match flight.begin(key, clock.now(), LOAD_S_MAX) {
        Begin::Full => Found::Full,
        Begin::Wait(waiter) => Found::Wait(waiter),
        // Another caller's load may have landed between our miss and our lead.
        Begin::Lead(token) => match map.look_up(key) {
            Some(value) => Found::Value(value),
            None => Found::Lead(token),
        },
    }
}

/// Stores a loaded value, and passes it or the error to those who wait.
fn land<V, T: Into<Expiry>, E: Send + Sync + 'static>(
    map: &impl Fill<V>,
    token: Token<Landed>,
    loaded: Result<(V, T), E>,
) -> Result<V, Arc<E>> {
    match loaded {
        Ok((value, ttl)) => {
            let key: Box<[u8]> = token.key().into();
            Ok(map.store(token, &key, value, ttl.into().ends(&map.inner().clock)))
        }
        Err(error) => {
            let error = Arc::new(error);
            token.land(Landed::Failed(error.clone()), |_| {});
            Err(error)
        }
    }
}

impl<K: ?Sized, V: Value> Fill<V> for Map<K, V> {
    fn inner(&self) -> &Inner {
        &self.inner
    }

    fn look_up(&self, key: &[u8]) -> Option<V> {
        self.inner.get(key, V::from_value).flatten()
    }

    fn shared(landed: &Landed) -> Option<V> {
        match landed {
            Landed::Value(bytes) => V::from_value(bytes),
            _ => None,
        }
    }

    fn store(&self, token: Token<Landed>, key: &[u8], value: V, ends: Ends) -> V {
        let bytes = value.with_value(|bytes| Arc::<[u8]>::from(bytes));
        // If it is refused, it is not stored; the waiters get it all the same.
        self.inner.land_value(token, key, Landed::Value(bytes), &value, ends);
        value
    }
}

impl Inner {
    /// Stores a loaded value, and passes what is shared of it to those who wait. True if it is stored.
    pub(super) fn land_value<V: Value>(
        &self,
        token: Token<Landed>,
        key: &[u8],
        shared: Landed,
        value: &V,
        ends: Ends,
    ) -> bool {
        // Writes of this key wait for the store. So the listener is called after it: it may write, and
        // it may wait for a thread that writes.
        let mut unreported = self.pool.unreported();
        let mut is_stored = false;
        token.land(shared, |_| {
            is_stored = matches!(self.store_loaded(key, value, ends, &mut unreported), Ok(true));
        });
        is_stored
    }
}

impl<K: Key + ?Sized, V: Value> Map<K, V> {
    /// The value of a key; on a miss the result of `load`, which is stored. Of many threads that
    /// miss a key at once, one loads and the others wait. An insert or a removal of the key while
    /// `load` runs is not overwritten. If `load` panics, the next waiter loads. After 30 s, others
    /// no longer wait for a load.
    ///
    /// Blocks: in a task use [`Map::get_or_insert_async`]. A value that can't be stored, for its
    /// size or because all memory is in use, is still returned.
    pub fn get_or_insert_with<Q: Key + ?Sized>(&self, key: &Q, load: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
    {
        self.get_or_insert_ttl_with(key, || (load(), Expiry::NEVER))
    }

    /// As [`Map::get_or_insert_with`], with a TTL from `load`, which begins when `load` returns.
    pub fn get_or_insert_ttl_with<Q: Key + ?Sized, T: Into<Expiry>>(
        &self,
        key: &Q,
        load: impl FnOnce() -> (V, T),
    ) -> V
    where
        K: Borrow<Q>,
    {
        let loaded = self.try_get_or_insert_ttl_with(key, || Ok::<_, Infallible>(load()));
        loaded.unwrap_or_else(|never| match *never {})
    }

    /// As [`Map::get_or_insert_with`], for a load that can fail. An error is not stored: every
    /// caller that waited for this load gets it, and the next one loads again.
    ///
    /// ```
    /// # let map: larder::Map<str, u16> = larder::Map::new(1 << 20)?;
    /// let port = map.try_get_or_insert_with("http", || "80".parse::<u16>());
    /// assert_eq!(port.ok(), Some(80));
    /// assert!(map.try_get_or_insert_with("none", || "x".parse::<u16>()).is_err());
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn try_get_or_insert_with<Q: Key + ?Sized, E: Send + Sync + 'static>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
    {
        self.try_get_or_insert_ttl_with(key, || Ok((load()?, Expiry::NEVER)))
    }

    /// As [`Map::try_get_or_insert_with`], with a TTL from `load`.
    pub fn try_get_or_insert_ttl_with<Q, T, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<(V, T), E>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
        T: Into<Expiry>,
        E: Send + Sync + 'static,
    {
        key.with_key(|bytes| self::load(self, bytes, load))
    }

    /// As [`Map::get_or_insert_with`], for tasks of any runtime. Only the leader awaits `load`; the
    /// others drop it unpolled. If the leader's task is dropped, the next waiter leads. Time alone
    /// wakes no waiter, so put your runtime's timeout around `load`.
    pub async fn get_or_insert_async<Q: Key + ?Sized>(
        &self,
        key: &Q,
        load: impl Future<Output = V>,
    ) -> V
    where
        K: Borrow<Q>,
    {
        self.get_or_insert_ttl_async(key, async { (load.await, Expiry::NEVER) }).await
    }

    /// As [`Map::get_or_insert_async`], with a TTL from `load`.
    pub async fn get_or_insert_ttl_async<Q: Key + ?Sized, T: Into<Expiry>>(
        &self,
        key: &Q,
        load: impl Future<Output = (V, T)>,
    ) -> V
    where
        K: Borrow<Q>,
    {
        let load = async { Ok::<_, Infallible>(load.await) };
        self.try_get_or_insert_ttl_async(key, load).await.unwrap_or_else(|never| match *never {})
    }

    /// As [`Map::get_or_insert_async`], for a load that can fail, with the errors of
    /// [`Map::try_get_or_insert_with`].
    pub async fn try_get_or_insert_async<Q: Key + ?Sized, E: Send + Sync + 'static>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
    {
        self.try_get_or_insert_ttl_async(key, async { Ok((load.await?, Expiry::NEVER)) }).await
    }

    /// As [`Map::try_get_or_insert_async`], with a TTL from `load`.
    pub async fn try_get_or_insert_ttl_async<Q, T, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<(V, T), E>>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
        T: Into<Expiry>,
        E: Send + Sync + 'static,
    {
        let bytes: Box<[u8]> = key.with_key(|bytes| bytes.into());
        load_async(self, &bytes, load).await
    }
}
