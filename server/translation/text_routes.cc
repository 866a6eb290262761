#include "server/translation/text_routes.h"

namespace sru::server::translation {

std::vector<rest::RouteGroup> TextRoutes(const lifecycle::ModelRegistry* registry,
                                         const calls::RequestLimits& limits,
                                         calls::InFlight* in_flight) {
  const auto translator = std::make_shared<TextTranslator>(registry, limits, in_flight);
  return {DeepLRoutes(translator), LibreTranslateRoutes(translator)};
}

}  // namespace sru::server::translation
