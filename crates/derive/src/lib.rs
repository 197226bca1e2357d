//! Derives `larder::Key`, `larder::DecodeKey` and `larder::Value` for structs and enums.
//!
//! A struct is encoded as its fields, in order, as the parts of a tuple are; an enum as a byte, the
//! position of the variant (not its discriminant), and then the fields of that variant. So the order
//! of fields and of variants is part of what a saved cache has.
//!
//! Each field's type must implement the trait itself. What can't be derived is an error of the
//! compiler at the place of its cause: unions, packed types, types that contain themselves. Where the
//! crate larder has another name, `#[larder(crate = name)]` on the type says so.
//!
//! The generated code passes the fields' bytes on by closures within closures, as the traits do, so
//! they are put together once, on the stack up to 256 bytes.
#![forbid(unsafe_code)]

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, GenericParam, Ident, Index, Member, Path, Type,
    parse_macro_input,
};

/// Derives `larder::Key`. Fields of floating-point numbers have no `Key`: 0.0 and -0.0 are equal.
#[proc_macro_derive(Key, attributes(larder))]
pub fn derive_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(parse_macro_input!(input as DeriveInput), &[Role::Encode], Kind::Key)
}

/// Derives `larder::DecodeKey`, which needs `larder::Key`. A field of type `T` must decode to a `T`.
#[proc_macro_derive(DecodeKey, attributes(larder))]
pub fn derive_decode_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(parse_macro_input!(input as DeriveInput), &[Role::Decode], Kind::Key)
}

/// Derives `larder::Value`.
#[proc_macro_derive(Value, attributes(larder))]
pub fn derive_value(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(parse_macro_input!(input as DeriveInput), &[Role::Encode, Role::Decode], Kind::Value)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Key,
    Value,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Encode,
    Decode,
}

/// One shape of the type: a struct, or a variant of an enum.
struct Shape {
    /// What constructs and matches it.
    path: TokenStream,
    fields: Vec<Field>,
    /// The variant's number.
    tag: Option<u8>,
}

struct Field {
    member: Member,
    /// The name that it has in the generated code.
    name: Ident,
    ty: Type,
}

fn derive(input: DeriveInput, roles: &[Role], kind: Kind) -> proc_macro::TokenStream {
    let made = krate(&input).and_then(|krate| {
        let shapes = shapes(&input)?;
        Ok(implementation(&input, &krate, &shapes, roles, kind))
    });
    made.unwrap_or_else(Error::into_compile_error).into()
}

/// Where larder is: `#[larder(crate = path)]`, or `::larder`.
fn krate(input: &DeriveInput) -> syn::Result<Path> {
    if let Some(packed) = input.attrs.iter().find(|attribute| is_packed(attribute)) {
        return Err(Error::new(packed.span(), "fields of a packed type can't be borrowed"));
    }
    let mut krate = syn::parse_quote!(::larder);
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("larder")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("expected `crate = path`, where larder has another name"));
            }
            krate = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(krate)
}

fn is_packed(attribute: &Attribute) -> bool {
    let list = attribute.meta.require_list();
    attribute.path().is_ident("repr")
        && list.is_ok_and(|list| list.tokens.to_string().contains("packed"))
}

/// Refuses attributes where they would have no effect.
fn without_attributes(attributes: &[Attribute]) -> syn::Result<()> {
    let stray = attributes.iter().find(|attribute| attribute.path().is_ident("larder"));
    stray.map_or(Ok(()), |stray| {
        Err(Error::new(stray.span(), "only the whole type takes an attribute of larder"))
    })
}

fn shapes(input: &DeriveInput) -> syn::Result<Vec<Shape>> {
    match &input.data {
        Data::Struct(data) => {
            Ok(vec![Shape { path: quote!(Self), fields: fields(&data.fields)?, tag: None }])
        }
        Data::Enum(data) => {
            let numbered = data.variants.iter().enumerate().map(|(number, variant)| {
                let tag = u8::try_from(number)
                    .map_err(|_| Error::new(variant.span(), "more variants than 256"))?;
                without_attributes(&variant.attrs)?;
                let name = &variant.ident;
                Ok(Shape {
                    path: quote!(Self::#name),
                    fields: fields(&variant.fields)?,
                    tag: Some(tag),
                })
            });
            numbered.collect()
        }
        Data::Union(_) => {
            Err(Error::new(input.ident.span(), "a union does not know which field it has"))
        }
    }
}

fn fields(fields: &Fields) -> syn::Result<Vec<Field>> {
    let one = |(at, field): (usize, &syn::Field)| {
        without_attributes(&field.attrs)?;
        Ok(Field {
            member: field.ident.clone().map_or(Member::Unnamed(Index::from(at)), Member::Named),
            name: format_ident!("larder_field_{at}"),
            ty: field.ty.clone(),
        })
    };
    fields.iter().enumerate().map(one).collect()
}

/// The implementation of one trait.
fn implementation(
    input: &DeriveInput,
    krate: &Path,
    shapes: &[Shape],
    roles: &[Role],
    kind: Kind,
) -> TokenStream {
    let name = &input.ident;
    let coding = Coding::of(kind, krate);
    let decodes_a_key = kind == Kind::Key && roles == [Role::Decode];
    let implemented = if decodes_a_key { &coding.decoder } else { &coding.encoder };
    let body = roles.iter().map(|role| match role {
        Role::Encode => coding.encode(shapes),
        Role::Decode => coding.decode(shapes),
    });
    let mut generics = input.generics.clone();
    let bounds = &mut generics.make_where_clause().predicates;
    // Two bounds that differ in a lifetime alone could not be told apart, and a type without a
    // parameter needs none.
    let parameters: Vec<Ident> = input.generics.params.iter().filter_map(parameter).collect();
    let fields = shapes.iter().flat_map(|shape| &shape.fields);
    for Field { ty, .. } in fields.filter(|field| mentions(field.ty.to_token_stream(), &parameters))
    {
        bounds.push(if decodes_a_key {
            syn::parse_quote!(#ty: #krate::DecodeKey<Owned = #ty>)
        } else {
            syn::parse_quote!(#ty: #krate::#implemented)
        });
    }
    let (parameters, arguments, conditions) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #parameters #krate::#implemented for #name #arguments #conditions {
            #(#body)*
        }
    }
}

/// The name of a type's or a constant's parameter.
fn parameter(parameter: &GenericParam) -> Option<Ident> {
    match parameter {
        GenericParam::Type(parameter) => Some(parameter.ident.clone()),
        GenericParam::Const(parameter) => Some(parameter.ident.clone()),
        GenericParam::Lifetime(_) => None,
    }
}

fn mentions(tokens: TokenStream, names: &[Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => names.contains(&ident),
        TokenTree::Group(group) => mentions(group.stream(), names),
        _ => false,
    })
}

/// What the generated code of keys and values has in common.
struct Coding<'a> {
    krate: &'a Path,
    /// The trait that encodes, its method, and its constant with the number of bytes.
    encoder: Ident,
    encode: Ident,
    bytes: Ident,
    /// The trait that decodes, its method, and the type that it has.
    decoder: Ident,
    decode: Ident,
    owned: TokenStream,
}

impl<'a> Coding<'a> {
    fn of(kind: Kind, krate: &'a Path) -> Self {
        let ([encoder, encode, bytes, decoder, decode], owned) = match kind {
            Kind::Key => (
                ["Key", "with_key", "BYTES", "DecodeKey", "from_key"],
                quote!(
                    type Owned = Self;
                ),
            ),
            Kind::Value => {
                (["Value", "with_value", "VALUE_BYTES", "Value", "from_value"], quote!())
            }
        };
        Coding {
            krate,
            encoder: format_ident!("{encoder}"),
            encode: format_ident!("{encode}"),
            bytes: format_ident!("{bytes}"),
            decoder: format_ident!("{decoder}"),
            decode: format_ident!("{decode}"),
            owned,
        }
    }

    /// The fixed number of bytes of a field's type, if any, as code.
    fn bytes_of(&self, ty: &Type) -> TokenStream {
        let Coding { krate, encoder, bytes, .. } = self;
        quote_spanned!(ty.span()=> <#ty as #krate::#encoder>::#bytes)
    }

    /// The constant with the number of bytes, and the method that encodes.
    fn encode(&self, shapes: &[Shape]) -> TokenStream {
        let Coding { encode, bytes, .. } = self;
        let fixed = self.fixed(shapes);
        let arms = shapes.iter().map(|shape| self.encode_shape(shape));
        // A match on no variants needs the place itself.
        let body = if shapes.is_empty() {
            quote!(match *self {})
        } else {
            quote!(match self { #(#arms)* })
        };
        quote! {
            const #bytes: ::core::option::Option<usize> = #fixed;

            #[inline]
            fn #encode<LarderResult>(
                &self,
                larder_with: impl ::core::ops::FnOnce(&[u8]) -> LarderResult,
            ) -> LarderResult {
                #body
            }
        }
    }

    fn fixed(&self, shapes: &[Shape]) -> TokenStream {
        let krate = self.krate;
        match shapes {
            [Shape { tag: None, fields, .. }] => {
                let all = fields.iter().map(|field| self.bytes_of(&field.ty));
                quote!(#krate::derived::sum(&[#(#all),*]))
            }
            _ if shapes.iter().all(|shape| shape.fields.is_empty()) => {
                quote!(::core::option::Option::Some(1))
            }
            _ => quote!(::core::option::Option::None),
        }
    }

    /// An arm that passes the parts of one shape: closures within closures, since fields pass theirs
    /// so, too.
    fn encode_shape(&self, Shape { path, fields, tag }: &Shape) -> TokenStream {
        let Coding { krate, encoder, encode, .. } = self;
        let parts = fields.iter().enumerate().map(|(at, Field { name, ty, .. })| {
            let is_open = match at + 1 == fields.len() {
                true => quote!(false),
                false => {
                    let bytes = self.bytes_of(ty);
                    quote!(#bytes.is_none())
                }
            };
            quote!((#name, #is_open))
        });
        let tag = tag.map(|tag| quote!((&[#tag], false),));
        let mut code = quote!(#krate::derived::join(&[#tag #(#parts),*], larder_with));
        for Field { name, ty, .. } in fields.iter().rev() {
            code = quote_spanned!(ty.span()=> #krate::#encoder::#encode(#name, |#name| #code));
        }
        let members = fields.iter().map(|field| &field.member);
        let names = fields.iter().map(|field| &field.name);
        quote!(#path { #(#members: #names),* } => #code,)
    }

    /// The method that decodes.
    fn decode(&self, shapes: &[Shape]) -> TokenStream {
        let Coding { decode, owned, .. } = self;
        let body = match shapes {
            [shape @ Shape { tag: None, .. }] => self.decode_shape(shape),
            _ => {
                let tags = shapes.iter().map(|shape| shape.tag);
                let arms = shapes.iter().map(|shape| self.decode_shape(shape));
                quote! {
                    let (larder_tag, larder_bytes) = larder_bytes.split_first()?;
                    match *larder_tag {
                        #(#tags => { #arms })*
                        _ => ::core::option::Option::None,
                    }
                }
            }
        };
        quote! {
            #owned

            #[inline]
            fn #decode(larder_bytes: &[u8]) -> ::core::option::Option<Self> {
                #body
            }
        }
    }

    fn decode_shape(&self, Shape { path, fields, .. }: &Shape) -> TokenStream {
        let Coding { krate, decoder, decode, .. } = self;
        let names: Vec<_> = fields.iter().map(|field| &field.name).collect();
        let all = fields.iter().map(|field| self.bytes_of(&field.ty));
        let parts = fields.iter().map(|Field { member, name, ty }| {
            quote_spanned!(ty.span()=> #member: <#ty as #krate::#decoder>::#decode(#name)?)
        });
        quote! {
            let [#(#names),*] = #krate::derived::split(larder_bytes, [#(#all),*])?;
            ::core::option::Option::Some(#path { #(#parts),* })
        }
    }
}
