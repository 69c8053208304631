// The merged state of the invocations of a subgroup, for each of them, by the subgroup's own arithmetic.
#include "float_order.glsl"

State merged_in_subgroup(State mine) {
#if KIND == SUM
    return State(subgroupAdd(mine.value));
#elif KIND == PRODUCT
    return State(subgroupMul(mine.value));
#elif KIND == COUNT
    return State(subgroupAdd(mine.count));
#elif KIND == LARGEST
    return State(from_order(subgroupMax(order_of(mine.value))));
#elif KIND == SMALLEST
    return State(from_order_with_nan_first(subgroupMin(order_with_nan_first(mine.value))));
#elif KIND == ARGMAX || KIND == ARGMIN
    const bool empty = mine.index == NONE;
    const float value = mine.value == 0.0 ? 0.0 : mine.value;  // -0 is equal to it
#if KIND == ARGMAX
    const uint order = empty ? 0 : order_of(value);
    const uint best = subgroupMax(order);
    const float extreme = from_order(best);
#else
    const uint order = empty ? 0xffffffffu : order_with_nan_first(value);
    const uint best = subgroupMin(order);
    const float extreme = from_order_with_nan_first(best);
#endif
    return State(extreme, subgroupMin(order == best && !empty ? mine.index : NONE));
#elif KIND == LOGSUMEXP
    const float high = from_order(subgroupMax(order_of(mine.high)));
    // If the largest element is nan or infinite, the sum does not matter.
    const float scale = mine.high == -infinity() || !is_finite(high) ? 0.0 : exp(mine.high - high);
    return State(high, subgroupAdd(mine.sum * scale));
#else
    const float count = subgroupAdd(mine.count);
    const float mean = subgroupAdd(mine.mean * (mine.count / max(count, 1.0)));
    const float delta = mine.mean - mean;
    const SQUARES away = mine.count == 0.0 ? SQUARES(0.0) : products(delta, delta) * mine.count;
    return State(count, mean, subgroupAdd(mine.squares + away));
#endif
}
