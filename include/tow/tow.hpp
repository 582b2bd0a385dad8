/* Tow for C++17 and later: objects that free what they hold, exceptions instead of statuses, layers with options.
 * Everything of the C interface (tow/tow.h) works beside it; what is here holds the same pointers, and .get() gives
 * them.
 *
 *     tow::context context;
 *     tow::sequential model;
 *     model.add(tow::dense({.features = 32}));            // designated initializers: C++20
 *     model.add(tow::activation(tow_tanh));
 *     model.add(tow::dense({.features = 1}));
 *     tow::train_state state(context, model, options);    // tow_train_options
 *     double loss = state.step({x, y});
 *
 * In C++17 options are assigned: tow::dense_options o; o.features = 32; model.add(tow::dense(o)); a layer is a plain
 * struct of C, so tow_dense d = tow::dense(); d.features = 32; does the same. Options that are left out are zero, which
 * means the default.
 *
 * Errors: what has a status in C throws tow::error, whose what() is the message of the context and whose status() is
 * the status. std::bad_alloc is thrown where C++ itself finds no memory. Nothing else throws. Exceptions must not leave
 * functions that Tow calls (losses, layers of one's own): C cannot pass them on. They report with tow_trace_fail and
 * tow_scope_fail.
 *
 * Lifetimes: a context outlives what was made from it. A layer that holds others (tow::remat(inner),
 * tow::sequential::add of a pointer) does not own them; tow::sequential owns copies of the layers that it gets by
 * value, at addresses that do not change. */
#ifndef TOW_HPP
#define TOW_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tow/tow.h"

namespace tow
{

/* ---- errors ------------------------------------------------------------------------------------------------------ */

class error : public std::runtime_error
{
  public:
    error(tow_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
    tow_status status() const noexcept { return status_; }

  private:
    tow_status status_;
};

/* Throws tow::error if status is not TOW_OK. The message is that of the context, or the text of the status if it has
 * none. */
inline void check(tow_status status, const tow_context *context)
{
    if (status == TOW_OK) return;
    const char *message = tow_context_error(context);
    throw error(status, *message ? message : tow_status_text(status));
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* Owns a T of C, which `free` frees: moved, not copied. .put() is where a function of C writes it. */
template <typename T, void (*free)(T *)> class handle
{
  public:
    handle() noexcept = default;
    explicit handle(T *object) noexcept : object_(object) {}
    handle(handle &&other) noexcept : object_(other.release()) {}
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) reset(other.release());
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { free(object_); }

    T *get() const noexcept { return object_; }
    explicit operator bool() const noexcept { return object_ != nullptr; }
    T *release() noexcept { return std::exchange(object_, nullptr); }
    void reset(T *object = nullptr) noexcept { free(std::exchange(object_, object)); }
    T **put() noexcept
    {
        reset();
        return &object_;
    }

  private:
    T *object_ = nullptr;
};

using graph = handle<tow_graph, tow_graph_release>;
using params = handle<tow_params, tow_params_free>;
using program = handle<tow_program, tow_program_free>;
using model_function = handle<tow_model_function, tow_model_function_free>;
using loader = handle<tow_loader, tow_loader_free>;
using generator = handle<tow_generator, tow_generator_free>;
using tokenizer = handle<tow_tokenizer, tow_tokenizer_free>;

class context
{
  public:
    context() : context(tow_context_options{}) {}
    explicit context(const tow_context_options &options)
    {
        const tow_status status = tow_context_create(&options, context_.put());
        check(status, context_.get());
    }
    tow_context *get() const noexcept { return context_.get(); }
    operator tow_context *() const noexcept { return context_.get(); }

  private:
    handle<tow_context, tow_context_free> context_;
};

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* The element type of T. bf16 and f16 have none in C++: their arrays are made with a tow_type. */
template <typename T> constexpr tow_dtype dtype_of()
{
    if constexpr (std::is_same_v<T, float>)
        return TOW_F32;
    else if constexpr (std::is_same_v<T, double>)
        return TOW_F64;
    else if constexpr (std::is_same_v<T, bool>)
        return TOW_BOOL;
    else if constexpr (std::is_same_v<T, std::int8_t>)
        return TOW_I8;
    else if constexpr (std::is_same_v<T, std::uint8_t>)
        return TOW_U8;
    else if constexpr (std::is_same_v<T, std::int32_t>)
        return TOW_I32;
    else if constexpr (std::is_same_v<T, std::uint32_t>)
        return TOW_U32;
    else if constexpr (std::is_same_v<T, std::int64_t>)
        return TOW_I64;
    else {
        static_assert(std::is_same_v<T, std::uint64_t>, "no element type of Tow");
        return TOW_U64;
    }
}

/* tow::type<float>({64, 1}) is f32[64,1]. */
inline tow_type type(tow_dtype dtype, std::initializer_list<std::int64_t> dims)
{
    return tow_make_type(dtype, static_cast<int>(dims.size()), dims.begin());
}
template <typename T> tow_type type(std::initializer_list<std::int64_t> dims) { return type(dtype_of<T>(), dims); }

/* An array, shared: copies hold the same elements. */
class array
{
  public:
    array() noexcept = default;
    /* Takes over one reference. */
    explicit array(tow_array *object) noexcept : array_(object) {}
    /* Zeros. */
    array(tow_context *context, tow_type type) { check(tow_array_create(context, type, array_.put()), context); }
    /* A copy of `data`, tow_type_bytes(type) bytes. */
    array(tow_context *context, tow_type type, const void *data)
    {
        check(tow_array_from_data(context, type, data, array_.put()), context);
    }
    /* A copy of `values`, as many as the dimensions say: tow::array(context, {2, 3}, values). Error:
     * TOW_SHAPE_MISMATCH. */
    template <typename T>
    array(tow_context *context, std::initializer_list<std::int64_t> dims, const std::vector<T> &values)
    {
        static_assert(!std::is_same_v<T, bool>,
                      "a vector of bool has no array of bytes: use std::uint8_t with a tow_type");
        const tow_type t = tow::type<T>(dims);
        if (tow_type_element_count(t) != static_cast<std::int64_t>(values.size()))
            throw error(TOW_SHAPE_MISMATCH, "tow::array: expected " + std::to_string(tow_type_element_count(t)) +
                                                " values, as the dimensions say, found " +
                                                std::to_string(values.size()));
        check(tow_array_from_data(context, t, values.data(), array_.put()), context);
    }
    array(const array &other) noexcept : array_(tow_array_retain(other.get())) {}
    array(array &&) noexcept = default;
    array &operator=(array other) noexcept
    {
        array_ = std::move(other.array_);
        return *this;
    }

    tow_array *get() const noexcept { return array_.get(); }
    explicit operator bool() const noexcept { return get() != nullptr; }
    tow_array **put() noexcept { return array_.put(); }
    tow_type type() const { return tow_array_type(get()); }
    std::size_t size() const { return static_cast<std::size_t>(tow_type_element_count(type())); }
    /* The elements, which are of type T. Error: TOW_TYPE_MISMATCH. */
    template <typename T> T *data() const
    {
        if (type().dtype != dtype_of<T>())
            throw error(TOW_TYPE_MISMATCH, std::string("tow::array::data: asked for ") + tow_dtype_name(dtype_of<T>()) +
                                               ", the array has " + tow_dtype_name(type().dtype));
        return static_cast<T *>(tow_array_data(get()));
    }
    template <typename T> std::vector<T> to_vector() const { return std::vector<T>(data<T>(), data<T>() + size()); }
    std::string text() const
    {
        std::string s(tow_array_text(get(), nullptr, 0) + 1, '\0');
        tow_array_text(get(), &s[0], s.size());
        s.pop_back();
        return s;
    }

  private:
    handle<tow_array, tow_array_release> array_;
};

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* The type of arguments that may be any layer: a struct of C whose first member is `module`, or a tow::sequential. */
class module
{
  public:
    module(const tow_module *object) noexcept :object_(object) {}
    template <typename Layer, typename = decltype(std::declval<const Layer &>().module.cls)>
    module(const Layer &layer) noexcept : object_(&layer.module)
    {
    }
    const tow_module *get() const noexcept { return object_; }

  private:
    const tow_module *object_;
};

/* Options behind the first members of a layer (its class and size, and the layer inside): they follow in memory in the
 * same order. */
template <int words, typename Options> struct behind {
    const void *first[words];
    Options options;
};

/* tow::NAME(options) is the struct tow_NAME with these options, for each layer of the headers, and tow::NAME(inner,
 * options) for those around another one. */
#define TOW__CPP_LAYER(function, name)                                                                                 \
    inline tow_##name function(const name##_options &options = {})                                                     \
    {                                                                                                                  \
        static_assert(sizeof(tow_##name) == sizeof(behind<2, name##_options>), "options of another layer");            \
        tow_##name layer = {};                                                                                         \
        layer.module = {&tow_##name##_class, sizeof layer};                                                            \
        std::memcpy(reinterpret_cast<char *>(&layer) + sizeof(tow_module), &options, sizeof options);                  \
        return layer;                                                                                                  \
    }
#define TOW__CPP_WRAPPER(function, name)                                                                               \
    inline tow_##name function(module inner, const name##_options &options = {})                                       \
    {                                                                                                                  \
        static_assert(sizeof(tow_##name) == sizeof(behind<3, name##_options>) || std::is_empty_v<name##_options>,      \
                      "options of another layer");                                                                     \
        tow_##name layer = {};                                                                                         \
        layer.module = {&tow_##name##_class, sizeof layer};                                                            \
        layer.inner = inner.get();                                                                                     \
        if (!std::is_empty_v<name##_options>)                                                                          \
            std::memcpy(reinterpret_cast<char *>(&layer) + 3 * sizeof(void *), &options, sizeof options);              \
        return layer;                                                                                                  \
    }

} // namespace tow

#include "tow/layer_options.hpp"

#undef TOW__CPP_LAYER
#undef TOW__CPP_WRAPPER

namespace tow
{

inline tow_activation_layer activation(tow_activation function) { return TOW_ACTIVATION(function); }
inline tow_named named(const char *name, module inner)
{
    tow_named layer = {};
    layer.module = {&tow_named_class, sizeof layer};
    layer.name = name;
    layer.inner = inner.get();
    return layer;
}

/* A vector of layers, called one after the other. It stays where it is made: the addresses of its layers do not
 * change. */
class sequential
{
  public:
    sequential() { layer_.module = {&tow_sequential_class, sizeof layer_}; }
    sequential(const sequential &) = delete;
    sequential &operator=(const sequential &) = delete;

    /* Adds a copy of `layer`, a struct of C, and returns it: options may still be assigned. */
    template <typename Layer, typename = decltype(std::declval<const Layer &>().module.cls)>
    Layer &add(const Layer &layer)
    {
        auto owned = std::make_shared<Layer>(layer);
        owned_.push_back(owned); // before the list names it, which would otherwise outlive it without memory
        add(&owned->module);
        return *owned;
    }
    /* Adds a layer that the caller keeps. */
    void add(const tow_module *layer)
    {
        layers_.push_back(layer);
        layer_.layers = layers_.data();
        layer_.n_layers = layers_.size();
    }
    void add(const sequential &inner) { add(inner.get()); }

    const tow_module *get() const noexcept { return &layer_.module; }
    operator module() const noexcept { return module(get()); }
    std::size_t size() const noexcept { return layers_.size(); }

  private:
    tow_sequential layer_ = {};
    std::vector<const tow_module *> layers_;
    std::vector<std::shared_ptr<void>> owned_;
};

/* ---- graphs and models ------------------------------------------------------------------------------------------- */

inline std::vector<tow_array *> pointers(const std::vector<array> &arrays)
{
    std::vector<tow_array *> list;
    for (const array &a : arrays) list.push_back(a.get());
    return list;
}

/* tow_evaluate: as many results as the graph has. */
inline std::vector<array> evaluate(tow_context *context, const graph &g, const std::vector<array> &inputs)
{
    std::vector<tow_array *> results(tow_graph_output_count(g.get()) + 1);
    check(tow_evaluate(g.get(), pointers(inputs).data(), results.data()), context);
    results.pop_back();
    std::vector<array> outputs;
    outputs.reserve(results.size());
    for (tow_array *result : results) outputs.emplace_back(result);
    return outputs;
}

/* tow_model_init: the parameters of a model for inputs of these types. */
inline params init(tow_context *context, module model, std::uint64_t seed, const std::vector<tow_type> &inputs)
{
    params p;
    check(tow_model_init(context, model.get(), seed, inputs.size(), inputs.data(), p.put()), context);
    return p;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

class train_state
{
  public:
    train_state(tow_context *context, module model, const tow_train_options &options) : context_(context)
    {
        check(tow_train_create(context, model.get(), &options, state_.put()), context);
    }
    /* One step on a batch, the inputs and then the extra arrays; returns the loss. */
    double step(const std::vector<array> &batch)
    {
        double loss = 0;
        check(tow_train_step(get(), pointers(batch).data(), &loss), context_);
        return loss;
    }
    double evaluate(const std::vector<array> &batch)
    {
        double loss = 0;
        check(tow_train_evaluate(get(), pointers(batch).data(), &loss), context_);
        return loss;
    }
    void save(const std::string &path) const { check(tow_train_save(get(), path.c_str()), context_); }
    void load(const std::string &path) { check(tow_train_load(get(), path.c_str()), context_); }
    tow_train_state *get() const noexcept { return state_.get(); }

  private:
    tow_context *context_;
    handle<tow_train_state, tow_train_free> state_;
};

} // namespace tow

#endif
