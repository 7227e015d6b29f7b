//! Tables in Rust sources: constants, arrays of names, variants.

use syn::{Expr, ExprLit, Item, ItemConst, Lit};

/// One source file.
pub struct Source {
    path: String,
    items: Vec<Item>,
}

impl Source {
    /// Parses a file of the repository.
    pub fn load(path: &str) -> Source {
        let file = syn::parse_file(&crate::text(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        Source { path: path.to_string(), items: file.items }
    }

    fn constant(&self, name: &str) -> &ItemConst {
        let named = |item: &&Item| matches!(item, Item::Const(constant) if constant.ident == name);
        match self.items.iter().find(named) {
            Some(Item::Const(constant)) => constant,
            _ => panic!("{}: no constant {name}", self.path),
        }
    }

    /// The number that a constant is.
    pub fn number(&self, name: &str) -> u64 {
        number(&self.constant(name).expr).unwrap_or_else(|| panic!("{}: {name} is no number", self.path))
    }

    /// The texts of a constant array: its elements, or the first of each tuple.
    pub fn names(&self, name: &str) -> Vec<String> {
        let Expr::Array(array) = &*self.constant(name).expr else { panic!("{}: {name} is no array", self.path) };
        let first = |element: &Expr| match element {
            Expr::Tuple(tuple) => text(&tuple.elems[0]),
            other => text(other),
        };
        array.elems.iter().map(|element| first(element).expect("a text")).collect()
    }

    /// The variants of an enumeration whose numbers are their places.
    pub fn variants(&self, name: &str) -> Vec<String> {
        let named = |item: &&Item| matches!(item, Item::Enum(found) if found.ident == name);
        let Some(Item::Enum(found)) = self.items.iter().find(named) else {
            panic!("{}: no enumeration {name}", self.path)
        };
        assert!(
            found.variants.iter().all(|v| v.discriminant.is_none()),
            "{}: {name} has numbers of its own",
            self.path
        );
        found.variants.iter().map(|variant| variant.ident.to_string()).collect()
    }
}

fn number(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) => int.base10_parse().ok(),
        Expr::Binary(binary) if matches!(binary.op, syn::BinOp::Shl(_)) => {
            Some(number(&binary.left)? << number(&binary.right)?)
        }
        _ => None,
    }
}

fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}
