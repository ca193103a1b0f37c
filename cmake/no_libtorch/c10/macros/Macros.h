#error "this component is pure C++: it must not include a libtorch header"
