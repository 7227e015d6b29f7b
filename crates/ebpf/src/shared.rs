//! An array map that this process writes in place while programs read it.

use crate::error::{Doing, Error, Result};
use crate::layout::MapData;
use libbpf_rs::{MapCore, MapHandle};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The array's memory. The kernel rounds each element's size up to a multiple of eight bytes.
pub struct Shared<T> {
    first: NonNull<T>,
    count: u32,
    types: PhantomData<T>,
}

/// Why a map's memory cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("its elements have another size")]
    OtherSize,
    #[error("mapped at 0")]
    AtZero,
}

// SAFETY: the memory belongs to the mapping, not to a thread; whoever writes has `&mut self`.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: MapData> Shared<T> {
    /// Maps the array, whose elements must be of the size of `T`.
    pub fn new(map: &MapHandle, name: &str) -> Result<Shared<T>> {
        assert_eq!(size_of::<T>() % 8, 0, "elements lie eight bytes apart");
        if map.value_size() as usize != size_of::<T>() {
            return Err(Error::new(format!("map {name}"), Unusable::OtherSize));
        }
        let count = map.max_entries();
        let bytes = count as usize * size_of::<T>();
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, wherever there is room for it, of the whole array.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, flags.0, flags.1, map.as_fd(), 0) };
        let memory = memory.doing(format!("map {name}: mmap {bytes} bytes"))?;
        let first = NonNull::new(memory.cast()).ok_or_else(|| Error::new(format!("map {name}"), Unusable::AtZero))?;
        Ok(Shared { first, count, types: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn at(&self, index: u32) -> NonNull<T> {
        assert!(index < self.count, "element {index} of {}", self.count);
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.first.add(index as usize) }
    }

    /// Programs may be writing the element: each field is consistent, the element as a whole need not be.
    pub fn get(&self, index: u32) -> T {
        // SAFETY: mapped, aligned (elements lie eight bytes apart from a page's beginning), and any bits are a T.
        unsafe { self.at(index).read_volatile() }
    }

    /// For elements that no other table refers to yet: the write is not atomic.
    pub fn put(&mut self, index: u32, value: T) {
        // SAFETY: as `get`; nobody else in this process writes, by `&mut self`.
        unsafe { self.at(index).write_volatile(value) }
    }

    /// A counter inside an element, `offset` bytes from its beginning.
    pub fn counter(&self, index: u32, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= size_of::<T>());
        // SAFETY: eight aligned bytes inside the element, which programs change by atomic additions only.
        let counter = unsafe { self.at(index).cast::<u8>().add(offset).cast::<AtomicU64>().as_ref() };
        counter.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, of which no reference is left.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.count as usize * size_of::<T>()) };
    }
}
