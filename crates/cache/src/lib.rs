//! stub
#![allow(missing_docs)]
use std::collections::*;
use std::sync::*;
pub mod mem { pub fn prefetch_slice<T>(_s: &[T], _i: usize) {} }
#[derive(Debug)] pub enum Error { Stalled { proxy: usize, behind: u64 }, Other }
impl std::fmt::Display for Error { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{self:?}") } }
#[derive(Clone, Copy, Default)] pub struct LogPosition(pub u64);
#[derive(Clone, Copy)] pub struct Seconds(pub u32);
#[derive(Clone)] pub struct Cache { m: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>> }
pub struct Builder;
impl Builder { pub fn budget(self, _b: u64) -> Self { self } pub fn proxies_max(self, _n: usize) -> Self { self } pub fn seed(self, _s: u64) -> Self { self }
 pub fn build(self) -> Result<Cache, Error> { Ok(Cache { m: Default::default() }) } }
pub struct Proxy { m: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>> }
pub struct Writer { m: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>, p: u64 }
pub struct Entry<'a>(Vec<u8>, std::marker::PhantomData<&'a ()>);
impl std::ops::Deref for Entry<'_> { type Target = [u8]; fn deref(&self) -> &[u8] { &self.0 } }
pub struct E2(Vec<u8>, Vec<u8>); impl E2 { pub fn key(&self) -> &[u8] { &self.0 } pub fn value(&self) -> &[u8] { &self.1 } }
impl Cache { pub fn builder() -> Builder { Builder } pub fn proxy(&self) -> Result<Proxy, Error> { Ok(Proxy { m: self.m.clone() }) } pub fn writer(&self) -> Writer { Writer { m: self.m.clone(), p: 0 } }
 pub fn hash(&self, k: &[u8]) -> u64 { use std::hash::*; let mut h = std::hash::DefaultHasher::new(); k.hash(&mut h); h.finish() }
 pub fn for_each(&self, mut f: impl FnMut(&E2)) { for (k, v) in self.m.lock().unwrap().iter() { f(&E2(k.clone(), v.clone())) } } }
impl Proxy { pub fn get(&self, k: &[u8], _n: Seconds) -> Option<Entry<'_>> { self.m.lock().unwrap().get(k).map(|v| Entry(v.clone(), std::marker::PhantomData)) } pub fn sync(&mut self) {} pub fn sync_to(&mut self, _p: LogPosition) {} pub fn prefetch(&self, _h: u64) {} }
impl Writer { pub fn insert(&mut self, k: &[u8], v: &[u8], _t: u32, _n: Seconds) -> Result<(), Error> { self.m.lock().unwrap().insert(k.to_vec(), v.to_vec()); Ok(()) } pub fn flush(&mut self) -> Result<LogPosition, Error> { self.p += 1; Ok(LogPosition(self.p)) } }
