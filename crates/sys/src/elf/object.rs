//! One loaded object: its segments, its symbol table and the hash tables that find names in it.

use super::Name;
use core::ffi::c_void;
use libc::{Elf64_Phdr, Elf64_Sym};

/// Elf64_Dyn of elf.h.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

/// Numbers of elf.h that the libc crate does not have.
mod elf {
    pub const DT_NULL: i64 = 0;
    pub const DT_HASH: i64 = 4;
    pub const DT_STRTAB: i64 = 5;
    pub const DT_SYMTAB: i64 = 6;
    pub const DT_GNU_HASH: i64 = 0x6fff_fef5;
    pub const DT_VERSYM: i64 = 0x6fff_fff0;
    pub const SHN_UNDEF: u16 = 0;
    pub const STB_LOCAL: u8 = 0;
    pub const STT_NOTYPE: u8 = 0;
    pub const STT_OBJECT: u8 = 1;
    pub const STT_FUNC: u8 = 2;
    pub const STT_GNU_IFUNC: u8 = 10;
    pub const STV_DEFAULT: u8 = 0;
    pub const STV_PROTECTED: u8 = 3;
    /// Flag of a DT_VERSYM entry: only programs that were linked against this version are bound to it.
    pub const VERSYM_HIDDEN: u16 = 0x8000;
}

/// A loaded object, which must stay loaded while this is used.
pub struct Object<'a> {
    base: usize,
    segments: &'a [Elf64_Phdr],
    symbols: *const Elf64_Sym,
    strings: *const u8,
    /// DT_GNU_HASH, or null.
    gnu: *const u32,
    /// DT_HASH, or null.
    sysv: *const u32,
    /// DT_VERSYM, or null: the object has no versions.
    versions: *const u16,
}

impl<'a> Object<'a> {
    /// None: it has no dynamic symbols.
    ///
    /// # Safety
    /// `base` and `segments` must be those of an object that the dynamic linker has loaded, as dl_iterate_phdr(3)
    /// gives them, and it must stay loaded for `'a`.
    pub unsafe fn new(base: usize, segments: &'a [Elf64_Phdr]) -> Option<Object<'a>> {
        let none = core::ptr::null::<u32>();
        let mut object = Object {
            base,
            segments,
            symbols: none.cast(),
            strings: none.cast(),
            gnu: none,
            sysv: none,
            versions: none.cast(),
        };
        let dynamic = segments.iter().find(|s| s.p_type == libc::PT_DYNAMIC)?;
        let mut at = base.wrapping_add(dynamic.p_vaddr as usize) as *const Entry;
        loop {
            // SAFETY: the dynamic section of a loaded object, which ends with DT_NULL.
            let entry = unsafe { &*at };
            let place = || object.locate(entry.value);
            match entry.tag {
                elf::DT_NULL => break,
                elf::DT_SYMTAB => object.symbols = place()? as *const Elf64_Sym,
                elf::DT_STRTAB => object.strings = place()? as *const u8,
                elf::DT_GNU_HASH => object.gnu = place()? as *const u32,
                elf::DT_HASH => object.sysv = place()? as *const u32,
                elf::DT_VERSYM => object.versions = place()? as *const u16,
                _ => {}
            }
            // SAFETY: the terminator has not been reached.
            at = unsafe { at.add(1) };
        }
        let found = !object.symbols.is_null() && !object.strings.is_null();
        (found && !(object.gnu.is_null() && object.sysv.is_null())).then_some(object)
    }

    /// Whether the address lies in one of its segments.
    pub fn contains(&self, address: usize) -> bool {
        self.segments.iter().filter(|s| s.p_type == libc::PT_LOAD).any(|s| {
            let start = self.base.wrapping_add(s.p_vaddr as usize);
            address.wrapping_sub(start) < s.p_memsz as usize
        })
    }

    /// The address for a value of the dynamic section. glibc stores addresses there, unless the section is read-only; musl and
    /// the kernel's vDSO leave offsets.
    fn locate(&self, value: usize) -> Option<usize> {
        [value, self.base.wrapping_add(value)].into_iter().find(|address| self.contains(*address))
    }

    /// The address that a reference without a version would be bound to.
    ///
    /// # Safety
    /// The object must have been relocated: if a function has several implementations (STT_GNU_IFUNC), its resolver is called.
    pub unsafe fn find(&self, name: &Name) -> Option<*mut c_void> {
        // SAFETY: the tables of a loaded object are as the linker wrote them.
        let symbol = unsafe { if self.gnu.is_null() { self.by_sysv_hash(name) } else { self.by_gnu_hash(name) } }?;
        let address = self.base.wrapping_add(symbol.st_value as usize) as *mut c_void;
        if symbol.st_info & 0xf != elf::STT_GNU_IFUNC {
            return Some(address);
        }
        // SAFETY: by contract, and by its type a function that returns an address.
        Some(unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> *mut c_void>(address)() })
    }

    /// The table: number of buckets, first symbol, words of the filter, a shift; the filter; the buckets; a hash value
    /// for each symbol from the first on, whose lowest bit ends a bucket.
    unsafe fn by_gnu_hash(&self, name: &Name) -> Option<&Elf64_Sym> {
        const WORD: u32 = usize::BITS;
        // SAFETY: the four words of the header.
        let &[buckets, first, words, shift] = unsafe { &*self.gnu.cast::<[u32; 4]>() };
        if buckets == 0 || words == 0 {
            return None;
        }
        let filter = self.gnu.wrapping_add(4).cast::<usize>();
        // SAFETY: the index is below the number of words.
        let word = unsafe { *filter.add((name.gnu / WORD % words) as usize) };
        let bits = 1usize << (name.gnu % WORD) | 1usize << (name.gnu.checked_shr(shift).unwrap_or(0) % WORD);
        if word & bits != bits {
            return None;
        }
        let bucket = filter.wrapping_add(words as usize).cast::<u32>();
        let hashes = bucket.wrapping_add(buckets as usize);
        // SAFETY: the index is below the number of buckets.
        let mut index = unsafe { *bucket.add((name.gnu % buckets) as usize) };
        while index >= first {
            // SAFETY: symbols of a bucket follow each other up to one whose hash value has the lowest bit set.
            let hash = unsafe { *hashes.add((index - first) as usize) };
            if hash | 1 == name.gnu | 1
                // SAFETY: as above.
                && let Some(symbol) = unsafe { self.symbol(index, name) }
            {
                return Some(symbol);
            }
            if hash & 1 != 0 {
                break;
            }
            index += 1;
        }
        None
    }

    /// The table: number of buckets, number of symbols; the buckets; for each symbol the next one of its bucket.
    unsafe fn by_sysv_hash(&self, name: &Name) -> Option<&Elf64_Sym> {
        // SAFETY: the two words of the header.
        let &[buckets, symbols] = unsafe { &*self.sysv.cast::<[u32; 2]>() };
        if buckets == 0 {
            return None;
        }
        let bucket = self.sysv.wrapping_add(2);
        let next = bucket.wrapping_add(buckets as usize);
        // SAFETY: the index is below the number of buckets.
        let mut index = unsafe { *bucket.add((name.sysv % buckets) as usize) };
        while index != 0 && index < symbols {
            // SAFETY: the index is below the number of symbols.
            if let Some(symbol) = unsafe { self.symbol(index, name) } {
                return Some(symbol);
            }
            // SAFETY: as above.
            index = unsafe { *next.add(index as usize) };
        }
        None
    }

    /// The symbol, if it is a definition with this name to which other objects may be bound.
    unsafe fn symbol(&self, index: u32, name: &Name) -> Option<&Elf64_Sym> {
        // SAFETY: the caller has the index from a hash table.
        let symbol = unsafe { &*self.symbols.add(index as usize) };
        let hidden = !self.versions.is_null()
            // SAFETY: an entry for each symbol.
            && matches!(unsafe { *self.versions.add(index as usize) }, 0 | elf::VERSYM_HIDDEN..);
        let (bind, kind) = (symbol.st_info >> 4, symbol.st_info & 0xf);
        let usable = matches!(kind, elf::STT_NOTYPE | elf::STT_OBJECT | elf::STT_FUNC | elf::STT_GNU_IFUNC)
            && bind != elf::STB_LOCAL
            && matches!(symbol.st_other & 3, elf::STV_DEFAULT | elf::STV_PROTECTED);
        let defined = symbol.st_shndx != elf::SHN_UNDEF && symbol.st_value != 0;
        // SAFETY: offset of a NUL-terminated string.
        let named = || unsafe { name.is(self.strings.add(symbol.st_name as usize)) };
        (defined && usable && !hidden && named()).then_some(symbol)
    }
}
